"""What makes a lineage's tokens, in the programs that exported models come with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tokenizers import Tokenizer

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import FormatError, VocabularyInfo
from pipeline_store.layout import StoreLayout
from trained_models import record_sources
from trained_models.vocabulary import lineage_tokens
from training.exporting.hugging_face import wordpiece_tokenizer
from training.exporting.text_ops import SentencePieceText, WordPieceText

_NO_SENTENCEPIECE = (
    "the vocabulary is a SentencePiece model. Hugging Face's tokenizers compute it with other "
    "roundings, so that of cuts with equal scores they may choose another: it would not be the "
    "tokenizer that the model was trained with"
)


@dataclass(frozen=True)
class LineageTokenizer:
    """A lineage's vocabulary, verified.

    :param tokens: in order of id.
    :param sentencepiece_model: content of the ``.model``, for vocabularies of that kind.
    """

    info: VocabularyInfo
    tokens: tuple[str, ...]
    sentencepiece_model: bytes | None

    @classmethod
    def load(cls, store: StoreLayout, config: PipelineConfig) -> LineageTokenizer:
        """Read what the lineage began with.

        :raises FileNotFoundError: it has no vocabulary.
        :raises FormatError: a file is not the one that it began with.
        :raises UserError: there are more tokens than the model has embeddings.
        """
        info = record_sources.vocabulary_info(store, config)
        model = _sentencepiece_model(store, config.model.lineage_id, info)
        return cls(info, lineage_tokens(store, config), model)

    @property
    def reason_against_hugging_face(self) -> str | None:
        """Return why no Hugging Face tokenizer makes the same tokens, or None."""
        return None if self.sentencepiece_model is None else _NO_SENTENCEPIECE

    def hugging_face(self, normalization: str) -> Tokenizer:
        """Return the tokenizer of a WordPiece vocabulary.

        :param normalization: ``NFC``, ``NFKC`` or ``none``.
        """
        lower = self.info.do_lower_case
        return wordpiece_tokenizer(self.tokens, do_lower_case=lower, normalization=normalization)

    def text_ops(self, normalization: str) -> WordPieceText | SentencePieceText:
        """Return the tokenizer as TensorFlow's ops; arguments as above."""
        lower = self.info.do_lower_case
        if self.sentencepiece_model is None:
            return WordPieceText(self.tokens, do_lower_case=lower, normalization=normalization)
        return SentencePieceText(
            self.sentencepiece_model, do_lower_case=lower, normalization=normalization
        )


def _sentencepiece_model(store: StoreLayout, lineage_id: str, info: VocabularyInfo) -> bytes | None:
    if info.vocabulary_kind != "sentencepiece":
        return None
    uri = store.lineage(lineage_id).sentencepiece_model
    data = uris.read(uri)
    if (sha256 := hashlib.sha256(data).hexdigest()) != info.sha256:
        raise FormatError(
            f"{uri} is damaged: its SHA-256 is {sha256}; vocabulary.json says {info.sha256}. "
            "Restore it; a lineage keeps one vocabulary for ever."
        )
    return data
