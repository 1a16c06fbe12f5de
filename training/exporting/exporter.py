"""Writes a model in other formats, checks each, and commits them together."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenizers import Tokenizer

from pipeline_config import PipelineConfig, with_overrides
from pipeline_config.schema import ModelConfig
from pipeline_store import uris
from pipeline_store.formats import (
    ExportCheck,
    ExportedFormat,
    FileDigest,
    FormatError,
    ModelExports,
    TrainingInputs,
    VocabularyInfo,
)
from pipeline_store.layout import ExportsLayout, StoreLayout
from training import artifacts, corpus
from training.checkpoints import check_architecture, load_weights
from training.commit import CommitGuard
from training.exporting import card, hugging_face
from training.exporting.checks import Subject, check_hugging_face, check_saved_model
from training.exporting.held_out_rows import held_out_rows, texts_of
from training.exporting.saved_model import write_saved_model
from training.exporting.text_ops import RowBuilder, SentencePieceText, WordPieceText
from training.model import build_model, named_variables
from training.vocabulary import lineage_tokens

log = logging.getLogger("training")

HUGGING_FACE, SAVED_MODEL = "hugging_face", "saved_model"
ROWS = 16
"""Held-out rows on which a format is compared with the model."""
# In them a model is exported, whatever it was trained with.
_PLAIN = {
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
    "training.mixed_precision_dtype": "float32",
    "training.residual_dtype": "float32",
}
_NO_SENTENCEPIECE = (
    "the vocabulary is a SentencePiece model. Hugging Face's tokenizers compute it with other "
    "roundings, so that of cuts with equal scores they may choose another: it would not be the "
    "tokenizer that the model was trained with"
)


@dataclass(frozen=True)
class Exporter:
    """One model, ready to be written.

    :param files_sha256: of its files, as :attr:`training.artifacts.ModelFiles.sha256`.
    :param subject: the model and what its exports are tried out on.
    :param model: the architecture as it was trained.
    :param has_next_sentence_head: whether such a head was trained.
    :param sentencepiece_model: content of the ``.model``, for vocabularies of that kind.
    """

    files_sha256: str
    subject: Subject
    model: ModelConfig
    vocabulary: VocabularyInfo
    inputs: TrainingInputs
    has_next_sentence_head: bool
    sentencepiece_model: bytes | None

    @classmethod
    def load(cls, model_uri: str, store: StoreLayout, config: PipelineConfig) -> Exporter:
        """Load a model of ours, in float32 and without dropout, and its held-out rows.

        :raises JobError: see :mod:`training.errors`.
        """
        files = artifacts.model_files(model_uri)
        vocabulary = corpus.vocabulary_info(store, config)
        check_architecture(model_uri, config, vocabulary.sha256)
        inputs = artifacts.load_inputs(files)
        tokens = lineage_tokens(store, config)
        rows = held_out_rows(inputs, store, config, ROWS)
        plain = with_overrides(config, _PLAIN)
        model = build_model(plain)
        loaded = load_weights(model, model_uri)
        log.info("Loaded %s: %s", model_uri, loaded)
        texts = texts_of(rows, tokens, vocabulary.vocabulary_kind)
        return cls(
            files_sha256=files.sha256,
            subject=Subject(model, plain, tokens, rows, texts),
            model=config.model,
            vocabulary=vocabulary,
            inputs=inputs,
            has_next_sentence_head=loaded.has_next_sentence_head,
            sentencepiece_model=_sentencepiece_model(store, config, vocabulary),
        )

    def reason_against(self, name: str) -> str | None:
        """Return why a format cannot hold this model, or None."""
        if name == HUGGING_FACE and self.sentencepiece_model is not None:
            return _NO_SENTENCEPIECE
        return None

    def write(self, name: str, folder: Path) -> ExportCheck:
        """Write one format into a new folder and check it.

        :raises BadDataError: it is not the model.
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
        hugging_face.write_weights(folder, model, values, next_sentence=self.has_next_sentence_head)
        hugging_face.write_tokenizer(
            folder,
            subject.tokens,
            self._tokenizer(),
            do_lower_case=self.vocabulary.do_lower_case,
            max_seq_length=model.max_position_embeddings,
        )
        text = card.render(model, self.vocabulary, self.inputs)
        (folder / "README.md").write_text(text)
        return check_hugging_face(folder, subject)

    def _write_saved_model(self, folder: Path) -> ExportCheck:
        subject = self.subject
        positions = self.model.max_position_embeddings
        rows = RowBuilder(self._text_ops(), subject.tokens, positions)
        write_saved_model(folder, subject.model, rows, subject.tokens)
        other = self._tokenizer() if self.sentencepiece_model is None else None
        return check_saved_model(folder, subject, other)

    def _tokenizer(self) -> Tokenizer:
        return hugging_face.wordpiece_tokenizer(
            self.subject.tokens,
            do_lower_case=self.vocabulary.do_lower_case,
            normalization=self.subject.config.corpus.unicode_normalization,
        )

    def _text_ops(self) -> WordPieceText | SentencePieceText:
        normalization = self.subject.config.corpus.unicode_normalization
        lower = self.vocabulary.do_lower_case
        if self.sentencepiece_model is None:
            tokens = self.subject.tokens
            return WordPieceText(tokens, do_lower_case=lower, normalization=normalization)
        return SentencePieceText(
            self.sentencepiece_model, do_lower_case=lower, normalization=normalization
        )


def _sentencepiece_model(
    store: StoreLayout, config: PipelineConfig, vocabulary: VocabularyInfo
) -> bytes | None:
    if vocabulary.vocabulary_kind != "sentencepiece":
        return None
    uri = store.lineage(config.model.lineage_id).sentencepiece_model
    data = uris.read(uri)
    if (sha256 := hashlib.sha256(data).hexdigest()) != vocabulary.sha256:
        raise FormatError(
            f"{uri} is damaged: its SHA-256 is {sha256}; vocabulary.json says "
            f"{vocabulary.sha256}. Restore it; a lineage keeps one vocabulary for ever."
        )
    return data


def export(
    exporter: Exporter,
    formats: Sequence[str],
    layout: ExportsLayout,
    guard: CommitGuard,
    *,
    dry_run: bool,
) -> ModelExports:
    """Write formats aside and name them in one file at the end; return what counts then.

    :param layout: where to.
    :param dry_run: write and check on this machine only.
    :raises BadDataError: a written format is not the model; nothing is committed.
    """
    reasons = {name: exporter.reason_against(name) for name in formats}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    for name, reason in left_out.items():
        log.warning("%s is left out: %s.", name, reason)
    with tempfile.TemporaryDirectory() as scratch:
        # All are checked before the first byte is stored.
        checks = {
            name: exporter.write(name, Path(scratch, name))
            for name in formats
            if name not in left_out
        }
        unique, written = uuid.uuid4().hex[:12], {}
        for name, check in checks.items():
            target = layout.format_files(unique, name)
            files = _upload(Path(scratch, name), None if dry_run else target)
            folder = target.removeprefix(f"{layout.root}/")
            written[name] = ExportedFormat(folder=folder, files=files, check=check)
    exports = ModelExports(
        files_sha256=exporter.files_sha256,
        formats=written,
        left_out=left_out,
        created=datetime.now(UTC),
    )
    if dry_run:
        return exports
    guard.check()
    if not exports.create(layout.record):
        exports = ModelExports.load(layout.record)
    _sweep(layout, exports)
    log.info("Committed: %s.", layout.record)
    return exports


def _upload(folder: Path, target: str | None) -> list[FileDigest]:
    """Return the digests of a folder's files, which are stored if there is a place for them."""
    digests = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        sha256 = uris.sha256(str(path))
        digests.append(FileDigest(path=name, bytes=path.stat().st_size, sha256=sha256))
        if target is not None:
            uris.upload(str(path), uris.join(target, name))
    return digests


def _sweep(layout: ExportsLayout, exports: ModelExports) -> None:
    """Delete the bytes of other tries: nothing will ever name them."""
    kept = [uris.join(layout.root, format_.folder, "") for format_ in exports.formats.values()]
    for uri in uris.list_files(layout.root):
        if uri != layout.record and not uri.startswith(tuple(kept)):
            uris.delete(uri)
