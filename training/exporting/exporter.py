"""Writes a masked language model in other formats, and checks each."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from pipeline_config import PipelineConfig, with_overrides
from pipeline_config.training_schema import ModelConfig
from pipeline_store.formats import ExportCheck, Heritage, TrainingInputs
from pipeline_store.layout import StoreLayout
from trained_models import artifacts
from trained_models.architectures.architecture import architecture_of
from trained_models.heritage import of_inputs
from training.architectures.models import build_model, named_variables
from training.exporting import card, hugging_face
from training.exporting.checks import Subject, check_hugging_face, check_saved_model
from training.exporting.held_out_rows import held_out_rows, texts_of
from training.exporting.lineage_tokenizer import LineageTokenizer
from training.exporting.saved_model import write_saved_model
from training.exporting.text_ops import RowBuilder
from training.exporting.writing import HUGGING_FACE
from training.model.checkpoints import check_architecture, load_weights
from training.runtime.job import on_cpu

log = logging.getLogger("training")

ROWS = 16
"""Held-out rows on which a format is compared with the model."""
# Models are exported without dropout, whatever they were trained with.
_PLAIN = {
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
}


@dataclass(frozen=True)
class Exporter:
    """A loaded model that can be exported.

    :param files_sha256: hash of its files, :attr:`trained_models.artifacts.ModelFiles.sha256`.
    :param subject: the model and the rows that its exports are checked on.
    :param model: architecture as it was trained.
    :param has_next_sentence_head: whether a next-sentence head was trained.
    """

    files_sha256: str
    subject: Subject
    model: ModelConfig
    tokenizer: LineageTokenizer
    inputs: TrainingInputs
    has_next_sentence_head: bool

    @property
    def has_pooler(self) -> bool:
        """Return whether the pooler is known not to be random."""
        return self.has_next_sentence_head or self._heritage.has_pooler

    @property
    def _heritage(self) -> Heritage:
        return of_inputs(self.inputs) or Heritage()

    @classmethod
    def load(cls, model_uri: str, store: StoreLayout, config: PipelineConfig) -> Exporter:
        """Load a model of ours, in float32 and without dropout, and its held-out rows.

        :raises JobError: see :mod:`trained_models.errors`.
        """
        files = artifacts.model_files(model_uri)
        tokenizer = LineageTokenizer.load(store, config)
        check_architecture(model_uri, config, tokenizer.info.sha256)
        inputs = artifacts.load_inputs(files)
        rows = held_out_rows(inputs, store, config, ROWS)
        plain = with_overrides(on_cpu(config), _PLAIN)
        model = build_model(plain)
        loaded = load_weights(model, model_uri)
        log.info("Loaded %s: %s", model_uri, loaded)
        texts = texts_of(rows, tokenizer.tokens, tokenizer.info.vocabulary_kind)
        return cls(
            files_sha256=files.sha256,
            subject=Subject(model, plain, tokenizer.tokens, rows, texts),
            model=config.model,
            tokenizer=tokenizer,
            inputs=inputs,
            has_next_sentence_head=loaded.has_next_sentence_head,
        )

    def reason_against(self, name: str) -> str | None:
        """Return why a format cannot hold this model, or None."""
        return self.tokenizer.reason_against_hugging_face if name == HUGGING_FACE else None

    def write(self, name: str, folder: Path) -> ExportCheck:
        """Write one format into a new folder and check it.

        :raises BadDataError: the written files do not reproduce the model.
        """
        write = self._write_hugging_face if name == HUGGING_FACE else self._write_saved_model
        check = write(folder)
        log.info(
            "%s: on %d held-out rows hidden states differ by %.1e at most, logits by %.1e; %d "
            "masks are filled with the same words.",
            name,
            check.rows,
            check.max_hidden_state_difference,
            check.max_logit_difference,
            check.masks,
        )
        return check

    def _write_hugging_face(self, folder: Path) -> ExportCheck:
        folder.mkdir()
        subject, model = self.subject, self.model
        values = {name: v.numpy() for name, v in named_variables(subject.model).items()}
        hugging_face.write_configuration(folder, model)
        hugging_face.write_weights(
            folder,
            model,
            values,
            pooler=self.has_pooler,
            next_sentence=self.has_next_sentence_head,
        )
        self.tokenizer.write_hugging_face(
            folder,
            self._normalization,
            max_seq_length=model.max_position_embeddings,
            inputs=architecture_of(model).hugging_face.inputs,
        )
        hugging_face.write_sentence_transformers(folder, self._heritage.sentence_transformers)
        text = card.render(model, self.tokenizer.info, self.inputs)
        (folder / "README.md").write_text(text)
        return check_hugging_face(folder, subject, pooler=self.has_pooler)

    def _write_saved_model(self, folder: Path) -> ExportCheck:
        subject = self.subject
        positions = self.model.max_position_embeddings
        rows = None
        if self.tokenizer.has_text_ops:
            text_ops = self.tokenizer.text_ops(self._normalization)
            rows = RowBuilder(text_ops, subject.tokens, positions)
        write_saved_model(folder, subject.model, rows, subject.tokens)
        has_other = self.tokenizer.reason_against_hugging_face is None
        other = self.tokenizer.hugging_face(self._normalization) if has_other else None
        return check_saved_model(folder, subject, other)

    @property
    def _normalization(self) -> str:
        return self.subject.config.corpus.unicode_normalization
