"""Chooses the tokens of a row to predict: single pieces, whole words, or spans of words.

Everything works on a batch of R rows of S positions at once. A *place* is a position in the batch:
row times S plus position.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.mlm_records.hashing import U64, splitmix64, unit_interval

Flags = npt.NDArray[np.bool_]
Draws = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

# Draws to be sorted carry the position or word that they are for in their lower bits, which are
# enough for the positions of a row.
_FIELD = U64(16)
_FIELD_MASK = U64(2**16 - 1)
_LAST = U64(2**64 - 1)
# Probability that a span ends after each of its words (SpanBERT, section 3.1).
_SPAN_STOP = 0.2
_SPAN_LENGTH = U64(0x8EBC6AF09C88C6E3)


class Chosen(NamedTuple):
    """The tokens to predict in a batch, as flags [R, S].

    ``leaders`` marks the first token of each unit whose tokens are hidden in the same way.
    """

    flags: Flags
    leaders: Flags


def choose_tokens(draws: Draws, maskable: Flags, budget: Integers) -> Chosen:
    """Choose in each row the ``budget`` [R] maskable tokens with the smallest draws."""
    rows, width = draws.shape
    # The position makes scores distinct, so that exactly as many as wanted are up to a threshold.
    scores = draws >> (_FIELD + U64(1))
    scores <<= _FIELD
    scores |= np.arange(width, dtype=U64)
    scores |= (~maskable).astype(U64) << U64(63)
    counts = np.minimum(budget, np.count_nonzero(maskable, axis=1))
    most = int(counts.max(initial=1))
    lowest = np.partition(scores, most - 1, axis=1)[:, :most]
    lowest.sort(axis=1)
    threshold = lowest[np.arange(rows), np.maximum(counts, 1) - 1]
    threshold[counts == 0] = 0
    flags = scores <= threshold[:, None]
    return Chosen(flags, flags)


class _Words(NamedTuple):
    """The N words of a batch by place, and their order in each row.

    ``starts``, ``ends`` [N]: a word's first place and the one after its last. ``ranked`` [R, most]
    has the numbers of each row's words in order of their draw, ``counts`` [R] how many there are.
    """

    starts: Integers
    ends: Integers
    ranked: Integers
    counts: Integers


def _find_words(draws: Draws, maskable: Flags, continues: Flags) -> _Words:
    """Find the words; tokens that cannot be masked separate words and are in none.

    A row may begin or end within a word; its part of the word counts as one.
    """
    rows, width = draws.shape
    borders = ~(continues & maskable)
    borders[:, 0] = True
    borders[:, 1:] |= ~maskable[:, :-1]
    places = np.flatnonzero(borders)
    behind = np.append(places[1:], rows * width)
    is_word = maskable.ravel()[places]
    starts, ends = places[is_word], behind[is_word]
    rows_of = starts // width
    counts = np.bincount(rows_of, minlength=rows)
    first = np.cumsum(counts) - counts
    numbers = np.arange(len(starts)) - first[rows_of]
    scores = np.full((rows, int(counts.max(initial=0))), _LAST)
    scores[rows_of, numbers] = (draws.ravel()[starts] & ~_FIELD_MASK) | numbers.astype(U64)
    scores.sort(axis=1)
    ranked = (scores & _FIELD_MASK).astype(np.int64) + first[:, None]
    return _Words(starts, ends, ranked, counts)


def _by_rank(words: _Words, left: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield, rank by rank, the rows with budget left and the next word of each.

    :param left: how many more tokens each row may have, shape [R]; the caller reduces it.
    """
    for rank in range(words.ranked.shape[1]):
        active = np.flatnonzero((left > 0) & (words.counts > rank))
        if not len(active):
            return
        yield active, words.ranked[active, rank]


def choose_words(draws: Draws, maskable: Flags, continues: Flags, budget: Integers) -> Chosen:
    """Choose whole words by their draws, skipping those that do not fit the rest of the budget.

    This is as in google-research/bert's ``create_masked_lm_predictions``.

    :param continues: which tokens continue the word of the token before them, shape [R, S].
    """
    words = _find_words(draws, maskable, continues)
    sizes = words.ends - words.starts
    left = budget.copy()
    taken = [np.empty(0, np.int64)]
    for active, word in _by_rank(words, left):
        fits = sizes[word] <= left[active]
        left[active[fits]] -= sizes[word[fits]]
        taken.append(word[fits])
    chosen = np.concatenate(taken)
    flags = _flags(words.starts[chosen], words.ends[chosen], draws.shape)
    return Chosen(flags, flags)


def choose_spans(
    draws: Draws, maskable: Flags, continues: Flags, budget: Integers, max_span_words: int
) -> Chosen:
    """Choose spans of whole words, as in SpanBERT (arXiv 1907.10529, section 3.1).

    A span begins at a random word and has a random number of words. It is cut at the end of the
    row, at a special token, at another span, and at the end of the budget.
    """
    words = _find_words(draws, maskable, continues)
    left = budget.copy()
    free = _last_free_words(words, draws.shape[1])
    begins, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for active, first in _by_rank(words, left):
        begin = words.starts[first]
        length = _span_lengths(draws.ravel()[begin], max_span_words)
        fitting = np.searchsorted(words.ends, begin + left[active], side="right") - 1
        last = np.minimum(np.minimum(first + length - 1, free[first]), fitting)
        taken = last >= first
        _take(free, first[taken], last[taken], max_span_words)
        begins.append(begin[taken])
        ends.append(words.ends[last[taken]])
        left[active[taken]] -= ends[-1] - begins[-1]
    starts = np.concatenate(begins)
    leaders = np.zeros(draws.shape, bool)
    leaders.ravel()[starts] = True
    return Chosen(_flags(starts, np.concatenate(ends), draws.shape), leaders)


def _last_free_words(words: _Words, width: int) -> Integers:
    """Return for every word the last one that a span beginning there can reach, shape [N]."""
    count = len(words.starts)
    is_last = np.ones(count, bool)
    is_last[:-1] = words.starts[1:] != words.ends[:-1]
    is_last[:-1] |= words.starts[1:] // width != words.starts[:-1] // width
    numbers = np.where(is_last, np.arange(count), count)
    return np.minimum.accumulate(numbers[::-1])[::-1]


def _take(free: Integers, first: Integers, last: Integers, max_span_words: int) -> None:
    """Mark the words from ``first`` to ``last`` as taken, so that no span can reach them."""
    steps = np.arange(max_span_words)
    inside = first[:, None] + steps
    free[inside[inside <= last[:, None]]] = -1
    before = np.maximum(first[:, None] - 1 - steps, 0)
    stops = np.broadcast_to(first[:, None] - 1, before.shape)
    reaching = free[before] > stops
    free[before[reaching]] = stops[reaching]


def _span_lengths(draws: Draws, max_span_words: int) -> Integers:
    """Return lengths in words, geometrically distributed and at most ``max_span_words``."""
    shares = (1 - _SPAN_STOP) ** np.arange(max_span_words)
    borders = np.cumsum(shares)[:-1] / shares.sum()
    draw = unit_interval(splitmix64(draws ^ _SPAN_LENGTH))
    return np.searchsorted(borders, draw, side="right") + 1


def _flags(starts: Integers, ends: Integers, shape: tuple[int, ...]) -> Flags:
    """Return flags that are set from each start up to its end."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    flags = np.zeros(shape, bool)
    flags.ravel()[np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))] = True
    return flags
