"""Builds a lineage's tokenizer for the programs that run exported models."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tensorflow as tf
from tokenizers import Tokenizer

from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import Vocabulary
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import FormatError, VocabularyInfo
from pipeline_store.layout import StoreLayout, vocabulary_model
from trained_models import record_sources
from trained_models.record_sources import lineage_tokens
from training.exporting import tokenizer_files
from training.exporting.text_ops import SentencePieceText, TextTokenizer, WordPieceText


class BpeText:
    """The data job's tokenizer, called with eager tensors; it cannot be part of a graph.

    :param normalization: ``NFC``, ``NFKC`` or ``none``; applied first, as in the data job.
    """

    def __init__(self, vocabulary: Vocabulary, *, normalization: str) -> None:
        self._tokenizer = make_tokenizer(vocabulary, do_lower_case=False)
        self._normalization = normalization

    def __call__(self, text: tf.Tensor) -> tf.RaggedTensor:
        """See :class:`training.exporting.text_ops.TextTokenizer`."""
        texts = [one.decode(errors="replace") for one in text.numpy()]
        if self._normalization != "none":
            form: Literal["NFC", "NFKC"] = "NFC" if self._normalization == "NFC" else "NFKC"
            texts = [unicodedata.normalize(form, one) for one in texts]
        ids, lengths = self._tokenizer.encode(texts)
        return tf.RaggedTensor.from_row_lengths(ids, lengths)


_NO_SENTENCEPIECE = (
    "the vocabulary is a SentencePiece model. Hugging Face's tokenizers compute it with other "
    "roundings, so that of cuts with equal scores they may choose another: it would not be the "
    "tokenizer that the model was trained with"
)


@dataclass(frozen=True)
class LineageTokenizer:
    """A lineage's vocabulary, verified."""

    info: VocabularyInfo
    vocabulary: Vocabulary

    @classmethod
    def load(cls, store: StoreLayout, config: PipelineConfig) -> LineageTokenizer:
        """Read the vocabulary that the lineage began with.

        :raises FileNotFoundError: the lineage has no vocabulary.
        :raises FormatError: a file is not the one that the lineage began with.
        :raises UserError: there are more tokens than the model has embeddings.
        """
        info = record_sources.vocabulary_info(store, config)
        model = _model(store, config.model.lineage_id, info)
        tokens = lineage_tokens(store, config)
        return cls(info, Vocabulary(tokens, info.vocabulary_kind, model))

    @property
    def tokens(self) -> tuple[str, ...]:
        """Return the tokens in order of id."""
        return self.vocabulary.tokens

    @property
    def separators(self) -> int:
        """Return how many separators stand between two texts."""
        return 2 if self.vocabulary.kind == "bpe" else 1

    @property
    def has_text_ops(self) -> bool:
        """Return whether a SavedModel can take text: TensorFlow has no op for byte-level BPE."""
        return self.vocabulary.kind != "bpe"

    @property
    def reason_against_hugging_face(self) -> str | None:
        """Return why no Hugging Face tokenizer makes the same tokens, or None."""
        return _NO_SENTENCEPIECE if self.vocabulary.kind == "sentencepiece" else None

    def hugging_face(self, normalization: str) -> Tokenizer:
        """Return the Hugging Face tokenizer of a WordPiece or byte-level BPE vocabulary.

        :param normalization: ``NFC``, ``NFKC`` or ``none``.
        """
        if self.vocabulary.kind == "bpe":
            return tokenizer_files.bpe_tokenizer(self.vocabulary, normalization=normalization)
        lower = self.info.do_lower_case
        return tokenizer_files.wordpiece_tokenizer(
            self.tokens, do_lower_case=lower, normalization=normalization
        )

    def write_hugging_face(
        self, folder: Path, normalization: str, *, max_seq_length: int, inputs: Sequence[str]
    ) -> None:
        """Write the tokenizer's files.

        :param max_seq_length: length to which texts are truncated if the caller requests that.
        :param inputs: names of the model's inputs in the library.
        """
        tokenizer_files.write_tokenizer(
            folder,
            self.vocabulary,
            self.hugging_face(normalization),
            do_lower_case=self.info.do_lower_case,
            max_seq_length=max_seq_length,
            inputs=inputs,
        )

    def text_ops(self, normalization: str) -> TextTokenizer:
        """Return the tokenizer as TensorFlow ops.

        Without :attr:`has_text_ops` it is a function of tensors that cannot be part of a graph.

        :param normalization: ``NFC``, ``NFKC`` or ``none``.
        """
        lower, model = self.info.do_lower_case, self.vocabulary.model
        if self.vocabulary.kind == "bpe":
            return BpeText(self.vocabulary, normalization=normalization)
        if model is None:
            return WordPieceText(self.tokens, do_lower_case=lower, normalization=normalization)
        return SentencePieceText(model, do_lower_case=lower, normalization=normalization)


def _model(store: StoreLayout, lineage_id: str, info: VocabularyInfo) -> bytes | None:
    uri = vocabulary_model(store.lineage(lineage_id), info.vocabulary_kind)
    if uri is None:
        return None
    data = uris.read(uri)
    if (sha256 := hashlib.sha256(data).hexdigest()) != info.sha256:
        raise FormatError(
            f"{uri} is damaged: its SHA-256 is {sha256}; vocabulary.json says {info.sha256}. "
            "Restore it; a lineage keeps one vocabulary for ever."
        )
    return data
