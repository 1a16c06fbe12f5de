"""Finds pairs of similar MinHash sketches among many, without comparing all with all.

Locality-sensitive hashing by bands (Leskovec et al., Mining of Massive Datasets, section 3.4): only
sketches that agree in all rows of some band are compared. datasketch's ``MinHashLSH`` does the same
with Python sets, some 6 kB and 60 microseconds for each document; here a band is one sorted array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.duplicates.minhash import Sketches

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_RECALL = 0.98
_MAX_BAND_ROWS = 16
_PAIRS_AT_ONCE = 1 << 15
_COMPARED = 8
"""Most sketches of a bucket to compare one with: texts from one template fill buckets."""
_SLOTS = 16
"""Slots per key of a table that filters out most keys without a match."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Pairs(NamedTuple):
    """Similar pairs: ``first[i]`` and ``second[i]`` are row numbers."""

    first: Numbers
    second: Numbers


def band_rows(threshold: float, permutations: int) -> int:
    """Return the most rows that a band may have so that pairs at the threshold are found.

    The chance that such a pair agrees in at least one band has to be 98 %. The more rows, the fewer
    comparisons are in vain.
    """

    def recall(rows: int) -> float:
        return float(1 - (1 - threshold**rows) ** (permutations // rows))

    fitting = [rows for rows in range(2, _MAX_BAND_ROWS + 1) if recall(rows) >= _RECALL]
    return max(fitting, default=1)


def similar_pairs(sketches: Sketches, threshold: float) -> Pairs:
    """Return pairs whose estimated Jaccard similarity is at least the threshold.

    Not all of them, but enough to connect similar sketches: all members of a bucket are compared
    with the first one, then those not similar to it with the first of the rest, and so on.

    :param sketches: shape [N, permutations].
    :returns: ``first < second``; a pair may appear more than once.
    """
    found: list[Pairs] = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64))]
    for keys in _bands(sketches, threshold):
        members, buckets = _crowded(np.argsort(keys, kind="stable"), keys)
        while len(members):
            begins = np.flatnonzero(np.diff(buckets, prepend=-1))
            leaders = members[begins][np.cumsum(np.diff(buckets, prepend=-1) != 0) - 1]
            is_leader = np.zeros(len(members), bool)
            is_leader[begins] = True
            similar = ~is_leader
            similar[~is_leader] = _are_similar(
                sketches, leaders[~is_leader], sketches, members[~is_leader], threshold
            )
            found.append(Pairs(leaders[similar], members[similar]))
            rest = ~is_leader & ~similar
            members, buckets = _without_singles(members[rest], buckets[rest])
    return Pairs(*(np.concatenate(column) for column in zip(*found, strict=True)))


def have_similar(sketches: Sketches, others: Sketches, threshold: float) -> Flags:
    """Return which sketches are similar to one of the others, shape [N].

    Only the first few others of a bucket are compared, in their order.

    :param sketches: shape [N, permutations].
    :param others: shape [M, permutations], of the same kind.
    """
    found = np.zeros(len(sketches), bool)
    for keys, other_keys in zip(
        _bands(sketches, threshold), _bands(others, threshold), strict=True
    ):
        there = _perhaps_in(other_keys, keys)
        order = there[np.argsort(other_keys[there], kind="stable")]
        rows = _perhaps_in(keys, other_keys[there])
        rows = rows[~found[rows]]
        ordered = other_keys[order]
        begins = np.searchsorted(ordered, keys[rows], "left")
        counts = np.searchsorted(ordered, keys[rows], "right") - begins
        for step in range(min(_COMPARED, int(counts.max(initial=0)))):
            more = np.flatnonzero(counts > step)
            found[rows[more]] |= _are_similar(
                sketches, rows[more], others, order[begins[more] + step], threshold
            )
    return found


def _perhaps_in(keys: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> Numbers:
    """Return the indexes of all keys that are among the wanted ones, and of few others."""
    slots = 1 << (_SLOTS * len(wanted)).bit_length()
    is_taken = np.zeros(slots, bool)
    is_taken[wanted % np.uint64(slots)] = True
    return np.flatnonzero(is_taken[keys % np.uint64(slots)])


def _bands(sketches: Sketches, threshold: float) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield for each band a key of every sketch, equal if all rows of the band are equal."""
    permutations = sketches.shape[1]
    rows = band_rows(threshold, permutations)
    for begin in range(0, permutations - rows + 1, rows):
        keys = np.zeros(len(sketches), np.uint64)
        for row in range(begin, begin + rows):
            keys = (keys ^ sketches[:, row]) * _MULTIPLIER
            keys ^= keys >> np.uint64(31)
        yield keys


def _crowded(order: Numbers, keys: npt.NDArray[np.uint64]) -> tuple[Numbers, Numbers]:
    """Return the members of buckets with more than one, and the numbers of their buckets."""
    ordered = keys[order]
    buckets = np.cumsum(np.concatenate(([0], ordered[1:] != ordered[:-1])), dtype=np.int64)
    return _without_singles(order, buckets)


def _without_singles(members: Numbers, buckets: Numbers) -> tuple[Numbers, Numbers]:
    same = buckets[1:] == buckets[:-1]
    crowded = np.zeros(len(members), bool)
    crowded[1:] |= same
    crowded[:-1] |= same
    return members[crowded], buckets[crowded]


def _are_similar(
    sketches: Sketches, first: Numbers, others: Sketches, second: Numbers, threshold: float
) -> npt.NDArray[np.bool_]:
    # The threshold as a whole number of equal rows, so that no rounding decides.
    needed = int(np.ceil(threshold * sketches.shape[1] - 1e-9))
    similar = np.zeros(len(first), bool)
    for start in range(0, len(first), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        equal = sketches[first[part]] == others[second[part]]
        similar[part] = np.count_nonzero(equal, axis=1) >= needed
    return similar
