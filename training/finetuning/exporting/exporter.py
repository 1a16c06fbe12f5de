"""Writes a fine-tuned model in other formats, and checks each."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from pipeline_config import PipelineConfig
from pipeline_store.formats import ClassifierCheck, FormatError, TaskManifest, TaskSplit
from pipeline_store.layout import StoreLayout
from trained_models import artifacts
from trained_models.architectures.architecture import architecture_of
from trained_models.errors import BadDataError
from training.exporting.lineage_tokenizer import LineageTokenizer
from training.exporting.writing import HUGGING_FACE
from training.finetuning.encoder import check_encoder
from training.finetuning.exporting import card, hugging_face
from training.finetuning.exporting.checks import Subject, check_hugging_face, check_saved_model
from training.finetuning.exporting.chosen import ChosenTrial
from training.finetuning.exporting.functions import TextFunctions, write_saved_model
from training.finetuning.exporting.segment_rows import SegmentRowBuilder
from training.finetuning.model import Classifier
from training.finetuning.task_data import Examples, Task
from training.finetuning.trained import TrainedTrial, load_trial_model

log = logging.getLogger("training")

EXAMPLES = 32
"""Number of the task's examples on which a format is compared with the model."""
# Settings with which models are exported and used, whatever they were trained with.
_PLAIN: dict[str, JsonValue] = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
    "mixed_precision_dtype": "float32",
}
_NO_PROBE = (
    "the encoder was frozen, and the classifier stands on the mean of its hidden states. {} has no "
    "such thing; its classifier stands on the first token's"
)


@dataclass(frozen=True)
class TextModel:
    """A trained model that takes texts.

    :param trained: the model, in float32 and without dropout.
    """

    chosen: ChosenTrial
    trained: TrainedTrial
    tokenizer: LineageTokenizer

    @classmethod
    def load(cls, chosen: ChosenTrial, store: StoreLayout) -> TextModel:
        """Load a trial's model and the vocabulary of its tokens.

        :raises JobError: see :mod:`trained_models.errors`.
        :raises FormatError: a file is damaged, or is not the trial's.
        """
        manifest, result = chosen.manifest, chosen.result
        if manifest.content_sha256 != result.task_manifest_sha256:
            raise FormatError(
                f"{chosen.manifest_uri} is not the task that {chosen.layout.result} was trained "
                f"on: its SHA-256 is {manifest.content_sha256}, there it is "
                f"{result.task_manifest_sha256}. Restore it."
            )
        trained = load_trial_model(chosen.layout.result, store, changes=_PLAIN)
        tokenizer = _load_tokenizer(store, trained.config, manifest)
        if trained.encoder is not None:
            check_encoder(result.encoder, store, trained.config, manifest.vocabulary_sha256)
        return cls(chosen, trained, tokenizer)

    @property
    def has_pairs(self) -> bool:
        """Return whether an example has two texts."""
        return self.chosen.task.text_pair_column is not None

    def functions(self) -> TextFunctions:
        """Return the functions from texts to answers."""
        text_ops = self.tokenizer.text_ops(self.chosen.task.unicode_normalization)
        length = self.chosen.manifest.max_seq_length
        rows = SegmentRowBuilder(
            text_ops, self.tokenizer.tokens, length, separators=self.tokenizer.separators
        )
        in_graph = self.tokenizer.has_text_ops
        return TextFunctions(self.trained, rows, has_pairs=self.has_pairs, in_graph=in_graph)


def _load_tokenizer(
    store: StoreLayout, config: PipelineConfig, manifest: TaskManifest
) -> LineageTokenizer:
    tokenizer = LineageTokenizer.load(store, config)
    if tokenizer.info.sha256 != manifest.vocabulary_sha256:
        raise FormatError(
            f"The vocabulary of lineage {config.model.lineage_id!r} is {tokenizer.info.sha256}; "
            f"task {manifest.name!r} was prepared with {manifest.vocabulary_sha256}. Restore it; a "
            "lineage keeps one vocabulary for ever."
        )
    return tokenizer


@dataclass(frozen=True)
class ClassifierExporter:
    """The :class:`training.exporting.writing.FormatWriter` of a fine-tuned model."""

    files_sha256: str
    model: TextModel
    subject: Subject

    @classmethod
    def load(cls, chosen: ChosenTrial, store: StoreLayout) -> ClassifierExporter:
        """Load a trial's model, and the examples that its exports are checked on.

        :raises JobError: see :mod:`trained_models.errors`.
        :raises FormatError: a file is damaged.
        """
        model = TextModel.load(chosen, store)
        examples = _examples(Task.load(chosen.manifest_uri))
        subject = Subject(model.trained, model.tokenizer, examples, model.has_pairs)
        return cls(
            artifacts.model_files(chosen.layout.training.root).sha256,
            model,
            subject,
        )

    def reason_against(self, name: str) -> str | None:
        """Return why a format cannot hold this model, or None."""
        if name != HUGGING_FACE:
            return None
        if self.model.trained.encoder is not None:
            form = architecture_of(self.model.trained.config.model).hugging_face
            return _NO_PROBE.format(form.classifier)
        return self.model.tokenizer.reason_against_hugging_face

    def write(self, name: str, folder: Path) -> ClassifierCheck:
        """Write one format into a new folder and check it.

        :raises BadDataError: the written files do not reproduce the model.
        """
        if name == HUGGING_FACE:
            self._write_hugging_face(folder)
            check = check_hugging_face(folder, self.subject)
        else:
            functions = self.model.functions()
            write_saved_model(folder, functions)
            check = check_saved_model(folder, self.subject, functions)
        log.info(
            "%s: on %d examples of the task logits differ by %.1e at most; %d have the same "
            "tokens when they are read as text.",
            name,
            check.examples,
            check.max_logit_difference,
            check.same_tokens,
        )
        return check

    def _write_hugging_face(self, folder: Path) -> None:
        folder.mkdir()
        chosen, trained, tokenizer = self.model.chosen, self.model.trained, self.model.tokenizer
        task, settings = chosen.task, chosen.result.settings
        classifier = trained.model
        if not isinstance(classifier, Classifier):
            raise TypeError(f"{type(classifier).__name__} cannot be written in this format")
        trained_with = {
            name: settings[name] for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")
        }
        model = trained.config.model.model_copy(update=trained_with)
        dropout = float(str(settings["classifier_dropout"]))
        hugging_face.write_configuration(
            folder, model, task, trained.labels, classifier_dropout=dropout
        )
        hugging_face.write_weights(folder, model, classifier)
        tokenizer.write_hugging_face(
            folder,
            task.unicode_normalization,
            max_seq_length=trained.max_seq_length,
            inputs=architecture_of(model).hugging_face.inputs,
        )
        (folder / "README.md").write_text(card.render(chosen, model))


def _examples(task: Task) -> Examples:
    """Return the first examples that were not trained on; without any, the first training ones."""
    for split in (TaskSplit.TEST, TaskSplit.VALIDATION, TaskSplit.TRAIN):
        records = task.manifest.splits.get(split)
        if records is not None and records.records:
            found = task.examples(split)
            return found.take(np.arange(min(EXAMPLES, len(found))))
    raise BadDataError(f"{task.uri} has no examples, so nothing can be tried out on them.")
