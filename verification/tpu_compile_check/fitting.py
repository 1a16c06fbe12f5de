"""The largest batch that fits, in a bounded number of compiles."""

from __future__ import annotations

from collections.abc import Callable

ROWS_MULTIPLE = 8
"""Rows come in eights: a TPU's registers hold eight of them, other counts are padded."""


def largest_fitting(fits: Callable[[int], bool], too_many: int, max_compiles: int) -> int | None:
    """Return the largest number of rows found to fit, below one that does not.

    Halves until one fits, then bisects between the two. Exact to a multiple of
    :data:`ROWS_MULTIPLE` if the compiles suffice, else a number that fits, though perhaps not the
    largest.

    :param fits: whether a step of so many rows fits; one compile each.
    :param too_many: rows that do not fit.
    :param max_compiles: how often ``fits`` may be called.
    :returns: None if nothing was found to fit.
    """
    low, high = None, _round_up(too_many)
    for _ in range(max_compiles):
        middle = _round_down(high // 2 if low is None else (low + high) // 2)
        if middle < ROWS_MULTIPLE or middle == low:
            break
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _round_down(rows: int) -> int:
    return rows // ROWS_MULTIPLE * ROWS_MULTIPLE


def _round_up(rows: int) -> int:
    return -(-rows // ROWS_MULTIPLE) * ROWS_MULTIPLE
