"""Chooses the tokens that a smaller WordPiece vocabulary keeps, and converts rows to it.

WordPiece takes the longest token that fits, from the left. If all tokens that a text has are kept,
the smaller vocabulary cuts it the same way: a longer token that would fit there would have fit in
the larger vocabulary, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.tokens.vocabulary import PAD, SPECIAL_TOKENS, UNK

Arrays = dict[str, npt.NDArray[Any]]
_INNER = "##"


def kept_ids(tokens: Sequence[str], used: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Return the ids that are kept, ascending: special tokens, single characters, and those used.

    :param used: arrays of ids of any shape.
    """
    keep = np.zeros(len(tokens), bool)
    for ids in used:
        keep[np.unique(ids)] = True
    for number, token in enumerate(tokens):
        if token in SPECIAL_TOKENS or len(token.removeprefix(_INNER)) == 1:
            keep[number] = True
    return np.flatnonzero(keep)


class TrimmedRows:
    """Converts rows of one vocabulary to the tokens of a smaller one.

    :param tokens: tokens of the larger vocabulary, in order of id.
    :param kept: ids that the smaller one has, ascending.
    """

    def __init__(self, tokens: Sequence[str], kept: npt.NDArray[np.int64]) -> None:
        self._tokens = tokens
        self._ids = {tokens[old]: new for new, old in enumerate(kept)}
        self._new = np.full(len(tokens), -1, np.int64)
        self._new[kept] = np.arange(len(kept))

    def covered(self, rows: Arrays) -> npt.NDArray[np.bool_]:
        """Return which rows have only tokens that are kept, [R]."""
        return np.asarray((self._new[rows["input_word_ids"]] >= 0).all(axis=1))

    def rows(self, rows: Arrays) -> Arrays:
        """Return rows of the same length in the smaller vocabulary, int32 [R, S].

        A word with a token that is not kept is cut anew, and tokens that do not fit any more are
        left out before the last ``[SEP]``.
        """
        words, types = rows["input_word_ids"], rows["input_type_ids"]
        found = {name: values.copy() for name, values in rows.items()}
        is_covered = self.covered(rows)
        found["input_word_ids"] = np.maximum(self._new[words], 0).astype(np.int32)
        for row in np.flatnonzero(~is_covered):
            real = rows["input_mask"][row] == 1
            cut = list(self._cut(words[row][real], types[row][real]))
            length = words.shape[1]
            if len(cut) > length:
                cut = [*cut[: length - 1], cut[-1]]
            for name in ("input_word_ids", "input_mask", "input_type_ids"):
                found[name][row] = 0
            found["input_word_ids"][row] = self._ids[PAD]
            found["input_word_ids"][row, : len(cut)] = [token for token, _ in cut]
            found["input_type_ids"][row, : len(cut)] = [kind for _, kind in cut]
            found["input_mask"][row, : len(cut)] = 1
        return found

    def _cut(self, ids: npt.NDArray[Any], types: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
        word: list[str] = []
        before = 0
        for token, kind in zip((self._tokens[i] for i in ids), types, strict=True):
            if not token.startswith(_INNER):
                yield from ((number, before) for number in self._pieces(word))
                word = []
            word.append(token)
            before = int(kind)
        yield from ((number, before) for number in self._pieces(word))

    def _pieces(self, word: list[str]) -> list[int]:
        """Return the ids of a word's pieces, each the longest that fits; ``[UNK]`` if none does."""
        if all(token in self._ids for token in word):
            return [self._ids[token] for token in word]
        text = "".join(token.removeprefix(_INNER) for token in word)
        begin, found = 0, []
        while begin < len(text):
            prefix = _INNER if begin else ""
            ends = range(len(text), begin, -1)
            end = next((e for e in ends if prefix + text[begin:e] in self._ids), None)
            if end is None:
                return [self._ids[UNK]]
            found.append(self._ids[prefix + text[begin:end]])
            begin = end
        return found
