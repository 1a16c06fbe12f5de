"""Text to the ids of a SentencePiece model, by Google's library."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import sentencepiece

from corpus.tokens.new_words import NewWords
from corpus.tokens.sentencepiece_model import SPACE
from corpus.tokens.vocabulary import Vocabulary

_WORD = re.compile(r"\w+")


def lower_case(text: str) -> str:
    """Return text in lower case and without accents, as ALBERT prepares it for SentencePiece."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join([sign for sign in decomposed if not unicodedata.combining(sign)]).lower()


class SentencePieceTokenizer:
    """Tokenizes by the library, each piece of text whole.

    A memory for words, as WordPiece has one, would double the speed but not give quite the same:
    where two ways to cut a word score the same, which one is taken depends on what comes before.
    """

    between = ""

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
        self._do_lower_case = do_lower_case
        self._whole = {token.removeprefix(SPACE) for token in vocabulary.tokens}

    def encode(
        self, pieces: Sequence[str], new_words: NewWords | None = None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """See :class:`corpus.tokens.tokenizing.Tokenizer`."""
        if self._do_lower_case:
            pieces = [lower_case(piece) for piece in pieces]
        found = self._processor.encode(list(pieces), num_threads=1)
        if new_words is not None:
            counts = Counter(chain.from_iterable(map(_WORD.findall, pieces)))
            new_words.add(item for item in counts.items() if item[0] not in self._whole)
        ids = np.fromiter(chain.from_iterable(found), np.int32)
        return ids, np.array(list(map(len, found)), np.int64)
