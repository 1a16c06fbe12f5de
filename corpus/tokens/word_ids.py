"""Caches the ids of words, and returns those of a whole text at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.tokens.word_split import KEY_BYTES, Words, keys_of
from corpus.tokens.word_table import Numbers, WordTable

# Bounds the memory to about 50 MB. When the cache is full, words that did not recur are forgotten.
MAX_WORDS = 200_000
_SHORT = 8


class WordTokens(NamedTuple):
    """The tokens of a word."""

    ids: Sequence[int]
    new_words: str
    """The words in it that the vocabulary does not have whole, with spaces between them."""


class WordIds:
    """A cache of words in front of a slow tokenizer. Equal words get equal ids, cached or not.

    Words of up to 8 bytes are one integer, those of up to 32 are four; there is a table for each.
    Longer ones are tokenized wherever they occur.

    :param tokenize: the slow tokenizer, for words as in :class:`Words`.
    :param max_words: how many words are cached, not counting those of one call.
    """

    def __init__(
        self, tokenize: Callable[[bytes], WordTokens], *, max_words: int = MAX_WORDS
    ) -> None:
        self._tokenize = tokenize
        self._max_words = max_words
        self._short, self._long = WordTable(1), WordTable(KEY_BYTES // 8)
        self._ids = np.empty(0, np.int32)
        self._ends = np.zeros(1, np.int64)
        self._new_words: list[str] = []
        self._is_new = np.empty(0, np.bool_)
        self._used = np.zeros(1, np.bool_)
        self._kept = 0

    def _forget_unused(self) -> None:
        """Keep the words that recurred since the last time, at most half of ``max_words``."""
        kept = np.flatnonzero(self._used[: self._kept])
        if len(kept) > self._max_words // 2:
            kept = kept[: self._max_words // 2]
        renumbered = np.full(self._kept, -1, np.int32)
        renumbered[kept] = np.arange(len(kept))
        starts, sizes = self._ends[kept], self._ends[kept + 1] - self._ends[kept]
        ends = np.cumsum(sizes)
        places = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
        self._ids = self._ids[places]
        self._ends = np.append(0, ends)
        self._new_words = [self._new_words[number] for number in kept.tolist()]
        self._is_new = self._is_new[kept]
        self._short, self._long = (t.renumbered(renumbered) for t in (self._short, self._long))
        self._kept = len(kept)
        self._used = np.zeros(self._kept + 1, np.bool_)

    def __len__(self) -> int:
        return self._kept

    def look_up(self, words: Words) -> Numbers:
        """Return a number for every word; it holds until the next call."""
        self._take_off_overlong()
        if len(self) > self._max_words:
            self._forget_unused()
        numbers = self._find(words)
        missing = np.flatnonzero(numbers < 0)
        # With -1 for a missing word the last flag is set, which is a spare one.
        self._used[numbers] = True
        if len(missing):
            numbers[missing] = self._learn(words.spellings(missing))
        return numbers

    def ids(self, numbers: Numbers) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the ids of words one after the other, and how many there are up to each's end."""
        starts, ends = self._ends.take(numbers), self._ends.take(numbers + 1)
        counts = ends - starts
        totals = np.cumsum(counts)
        places = np.repeat(ends - totals, counts)
        places += np.arange(len(places))
        return self._ids.take(places), totals

    def count_new(self, numbers: Numbers) -> list[tuple[str, int]]:
        """Return the new words among words, as :attr:`WordTokens.new_words`, with their counts."""
        counts = np.bincount(numbers[self._is_new.take(numbers)])
        found = np.flatnonzero(counts)
        names = [self._new_words[number] for number in found.tolist()]
        return list(zip(names, counts[found].tolist(), strict=True))

    def _find(self, words: Words) -> Numbers:
        keys = words.keys(slice(None), 1)
        long = np.flatnonzero(words.lengths > _SHORT)
        keys[0, long] = 0
        numbers = self._short.find(keys)
        long = long[words.lengths[long] <= KEY_BYTES]
        numbers[long] = self._long.find(words.keys(long, KEY_BYTES // 8))
        return numbers

    def _learn(self, spellings: list[bytes]) -> list[int]:
        """Tokenize words, cache them and return their numbers."""
        # Words that are not cached come last, so that they can be removed again.
        different = sorted(dict.fromkeys(spellings), key=len)
        first = self._kept
        numbers = dict(zip(different, range(first, first + len(different)), strict=True))
        self._append(list(map(self._tokenize, different)))
        sizes = np.fromiter(map(len, different), np.int64, len(different))
        begin = 0
        for table, longest, width in (
            (self._short, _SHORT, 1),
            (self._long, KEY_BYTES, KEY_BYTES // 8),
        ):
            end = begin + int(np.count_nonzero(sizes[begin:] <= longest))
            table.insert(
                keys_of(different[begin:end], width),
                np.arange(first + begin, first + end, dtype=np.int32),
            )
            begin = end
        self._kept += begin
        self._used = np.append(self._used[:-1], np.zeros(begin + 1, np.bool_))
        return [numbers[word] for word in spellings]

    def _append(self, tokens: list[WordTokens]) -> None:
        words, new_words = zip(*tokens, strict=True)
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        ids = np.fromiter(chain.from_iterable(words), np.int32)
        self._ids = np.concatenate([self._ids, ids])
        self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(lengths)])
        self._new_words += new_words
        is_new = np.fromiter(map(bool, new_words), np.bool_, len(words))
        self._is_new = np.concatenate([self._is_new, is_new])

    def _take_off_overlong(self) -> None:
        """Remove the words that are in no table."""
        del self._new_words[self._kept :]
        self._is_new = self._is_new[: self._kept]
        self._ends = self._ends[: self._kept + 1]
        self._ids = self._ids[: self._ends[-1]]
