"""Text to WordPiece ids, by Hugging Face's tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from beam_jobs.vocabulary import UNK, Vocabulary

# Bounds the tokenizer's own memory, a few hundred bytes a token.
_CHUNK_CHARACTERS = 1 << 20
# Words longer than this are [UNK], as in Google's and Hugging Face's BERT tokenizers.
_MAX_WORD_CHARACTERS = 100


def untrained_tokenizer(do_lower_case: bool, model: WordPiece) -> Tokenizer:
    """Return BERT's text cleaning and word splitting around a WordPiece model."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer(lowercase=do_lower_case)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


class WordPieceTokenizer:
    """Tokenizes as BERT does.

    Special tokens are added by whoever builds rows. In the text, ``[MASK]`` is four characters and
    a word like any other.
    """

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool) -> None:
        model = WordPiece(
            vocabulary.ids, unk_token=UNK, max_input_chars_per_word=_MAX_WORD_CHARACTERS
        )
        self._tokenizer = untrained_tokenizer(do_lower_case, model)
        self._tokenizer.encode_special_tokens = True

    def encode(
        self, sentences: Sequence[str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the ids of all sentences, one after the other, and each sentence's length."""
        ids: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
        lengths: list[int] = []
        for chunk in _chunks(sentences):
            encodings = self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
            pieces = [encoding.ids for encoding in encodings]
            ids.append(np.fromiter(chain.from_iterable(pieces), np.int32))
            lengths.extend(map(len, pieces))
        return np.concatenate(ids), np.array(lengths, np.int64)


def _chunks(sentences: Sequence[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for sentence in sentences:
        chunk.append(sentence)
        characters += len(sentence)
        if characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
