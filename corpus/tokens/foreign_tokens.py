"""Checks whether rows that another program has made hold tokens of a vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from corpus.text.record_documents import RowTokens
from corpus.tokens.vocabulary import CLS, MASK, SEP, Vocabulary

# Findings on fewer tokens may be chance.
_LEAST_TOKENS = 1000
_LEAST_PREDICTIONS = 100
_UNUSED = re.compile(r"\[unused\d+\]")
# Text of the vocabulary itself has hardly any. With bert-base-uncased, the periods and commas of
# bert-base-cased alone, whose ids are unused places there, are a tenth.
_MOST_IMPOSSIBLE = 0.01


class ForeignTokens:
    """Compares rows with a vocabulary.

    Ids do not reveal a casing, so tokens are searched for that text never has: unused places, and
    pieces that continue a punctuation mark, which BERT makes a token of its own.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        self._ids = vocabulary.ids
        self._size = len(tokens)
        self._is_unused = _flags(_UNUSED.fullmatch(token) is not None for token in tokens)
        self._is_mark = _flags(len(token) == 1 and not token.isalnum() for token in tokens)
        self._continues = _flags(token.startswith("##") for token in tokens)

    def why_not(self, rows: Sequence[RowTokens]) -> str | None:
        """Return why rows were made with another vocabulary; None if nothing indicates it.

        :param rows: at least one.
        """
        tokens = np.concatenate([piece for row in rows for piece in row.pieces])
        if tokens.max() >= self._size:
            return f"they have a token {tokens.max()}, but the vocabulary has {self._size}"
        for name, place, where in ((CLS, 0, "begin"), (SEP, 1, "end")):
            own = self._ids[name]
            other = [row.frame[place] for row in rows if row.frame[place] != own]
            if other:
                return f"they {where} with token {other[0]}, and {name} is {own}"
        shown = np.concatenate([row.shown for row in rows])
        if len(shown) >= _LEAST_PREDICTIONS:
            most = int(np.bincount(shown).argmax())
            if most != self._ids[MASK]:
                return f"they are masked with token {most}, and {MASK} is {self._ids[MASK]}"
        share = self._impossible(tokens, rows) / len(tokens)
        if len(tokens) >= _LEAST_TOKENS and share > _MOST_IMPOSSIBLE:
            return (
                f"{share:.1%} of their tokens are places without a word, or continue a mark of "
                "punctuation: the ids mean other words, such as those of another casing"
            )
        return None

    def _impossible(self, tokens: npt.NDArray[np.int32], rows: Sequence[RowTokens]) -> int:
        continued = self._continues[tokens]
        # A piece may begin within a word.
        lengths = [len(piece) for row in rows for piece in row.pieces]
        continued[np.cumsum(lengths)[:-1]] = False
        follows_mark = continued[1:] & self._is_mark[tokens[:-1]]
        return int(self._is_unused[tokens].sum() + follows_mark.sum())


def _flags(flags: Iterable[bool]) -> npt.NDArray[np.bool_]:
    return np.fromiter(flags, np.bool_)
