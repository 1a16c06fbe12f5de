"""Random draws for rows of two segments: hashes of document, row, row length and seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.mlm_records.hashing import U64, draw, unit_interval
from corpus.rows.plans import Keys, Places

_SHORTEST_TARGET = 2
# The counters of a row length begin at this times the length, because rows of two lengths are cut
# from the same documents. The counters of masks are positions, which are smaller.
_DRAWS_OF_A_LENGTH = 1 << 16
_IS_SHORT, _TARGET, _IS_RANDOM, _MIDDLE, _DOCUMENT, _SENTENCE = range(6)
# Coins take a draw for every 64 tokens, of which a sentence has some ten thousand at most.
_FIRST_FRONT, _SECOND_FRONT = 1 << 10, 1 << 12
_BITS = 64


class PairDraws:
    """Draws by row; ``keys`` [R] are :func:`corpus.mlm_records.row_keys` of copy 0.

    :param room: most tokens of both segments together.
    """

    def __init__(self, room: int, short_seq_prob: float, random_seed: int) -> None:
        self._room = room
        self._short_seq_prob = short_seq_prob
        self._random_seed = random_seed

    def targets(self, keys: Keys) -> Places:
        """Return the numbers of tokens that rows should have: all that fit, or 2 to that many."""
        is_short = unit_interval(self._draw(keys, _IS_SHORT)) < self._short_seq_prob
        short = _SHORTEST_TARGET + self._below(keys, _TARGET, self._room - _SHORTEST_TARGET + 1)
        return np.where(is_short, short, self._room)

    def is_random(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Return whether the second segment is a random one: with probability 1/2."""
        return self._draw(keys, _IS_RANDOM) >= U64(1 << 63)

    def middles(self, keys: Keys) -> npt.NDArray[np.float64]:
        """Return the share of a row that is its first segment, in [0, 1)."""
        return unit_interval(self._draw(keys, _MIDDLE))

    def documents(self, keys: Keys, count: int) -> Places:
        """Return numbers of documents, from 0 up to ``count``."""
        return self._below(keys, _DOCUMENT, count)

    def sentences(self, keys: Keys, counts: Places) -> Places:
        """Return numbers of sentences, from 0 up to ``counts`` [R]."""
        return self._below(keys, _SENTENCE, counts)

    def fronts(self, keys: Keys, first: Places, second: Places) -> tuple[Places, Places]:
        """Return how many of the tokens that segments lose are at their front.

        Each token is lost there with probability 1/2.

        :param first: tokens that the first segments lose, shape [R].
        :param second: tokens that the second segments lose, shape [R].
        """
        return self._heads(keys, _FIRST_FRONT, first), self._heads(keys, _SECOND_FRONT, second)

    def _heads(self, keys: Keys, number: int, counts: Places) -> Places:
        """Return how often ``counts`` [R] coins show heads."""
        heads = np.zeros(len(counts), np.int64)
        for word in range(-(-int(counts.max(initial=0)) // _BITS)):
            some = np.flatnonzero(counts > word * _BITS)
            unused = np.maximum(_BITS - (counts[some] - word * _BITS), 0).astype(np.uint64)
            heads[some] += np.bitwise_count(self._draw(keys[some], number + word) >> unused)
        return heads

    def _below(self, keys: Keys, number: int, limit: int | Places) -> Places:
        return (unit_interval(self._draw(keys, number)) * limit).astype(np.int64)

    def _draw(self, keys: Keys, number: int) -> npt.NDArray[np.uint64]:
        counters = np.array([self._room * _DRAWS_OF_A_LENGTH + number], U64)
        return draw(keys, counters, self._random_seed)[:, 0]
