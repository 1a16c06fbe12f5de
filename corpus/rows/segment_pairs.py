"""Packs documents into rows of two segments for next-sentence prediction.

This is as in google-research/bert's ``create_pretraining_data.py``. The first segment is some
sentences of a document. The second is, in half of the rows, the text that follows them, and in the
other half sentences of another document; the text that follows then begins the next row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from corpus.mlm_records import row_keys
from corpus.rows.blocks import BLOCK_TOKENS, Block, BlockCollector
from corpus.rows.pair_draws import PairDraws
from corpus.rows.plans import Documents, Keys, Places, RowPlan, Segments, join_plans

# [CLS], and [SEP] after each segment.
_SPECIAL_TOKENS = 3


class _Span(NamedTuple):
    """A segment of each of R rows, as places in a block's ``ids``."""

    starts: Places
    ends: Places


class _Cuts(NamedTuple):
    """The cuts of the text of a block's documents into R rows.

    ``documents`` [R]: each row's document; ``numbers`` [R]: the row's number in it. The first
    segment is from ``starts`` to ``middles``, the second from there to ``ends``, which is below 0
    if it is a random one. ``targets``: the number of tokens that the row should have.
    """

    documents: Places
    numbers: Places
    starts: Places
    middles: Places
    ends: Places
    targets: Places


class PairPacker:
    """``segment_pair``; a :class:`corpus.rows.packing.Packer`."""

    def __init__(
        self,
        max_seq_length: int,
        *,
        short_seq_prob: float,
        random_seed: int,
        block_tokens: int = BLOCK_TOKENS,
    ) -> None:
        self._room = max_seq_length - _SPECIAL_TOKENS
        self._draws = PairDraws(self._room, short_seq_prob, random_seed)
        self._blocks = BlockCollector(block_tokens)

    def add(self, documents: Documents) -> RowPlan:
        """See :class:`corpus.rows.packing.Packer`."""
        return join_plans([self._plan(block) for block in self._blocks.add(documents)])

    def finish(self) -> RowPlan:
        """See :class:`corpus.rows.packing.Packer`."""
        return join_plans([self._plan(block) for block in self._blocks.finish()])

    def _plan(self, block: Block) -> RowPlan:
        """Return the rows of a block's documents, in order."""
        block = block.divided(self._room)
        cuts = _cut(block, self._draws)
        numbers = cuts.numbers.astype(np.uint64)
        keys = row_keys(block.keys[cuts.documents], numbers, 0)
        first, second = _Span(cuts.starts, cuts.middles), _Span(cuts.middles.copy(), cuts.ends)
        is_random = np.flatnonzero(cuts.ends < 0)
        elsewhere = self._elsewhere(block, keys[is_random], _Cuts(*(a[is_random] for a in cuts)))
        second.starts[is_random], second.ends[is_random] = elsewhere
        first, second = self._shortened(keys, first, second)
        random_next = np.zeros(len(keys), np.uint8)
        random_next[is_random] = 1
        return RowPlan(
            block.ids,
            first.starts,
            first.ends - first.starts,
            block.keys[cuts.documents],
            numbers,
            Segments(second.starts, second.ends - second.starts, random_next),
        )

    def _elsewhere(self, block: Block, keys: Keys, cuts: _Cuts) -> _Span:
        """Return random second segments: sentences of another document, up to the row's target.

        If there is no other document, they are of the same one, but not those that follow.
        """
        others = self._other_documents(keys, cuts.documents, len(block.keys))
        begin, end = block.first[others], block.first[others + 1]
        sentences = begin + self._draws.sentences(keys, end - begin)
        follows = (others == cuts.documents) & (block.bounds[sentences] == cuts.middles)
        sentences = np.where(follows, begin + (sentences + 1 - begin) % (end - begin), sentences)
        starts = block.bounds[sentences]
        wanted = np.maximum(cuts.targets - (cuts.middles - cuts.starts), 1)
        stops = np.minimum(np.searchsorted(block.bounds, starts + wanted), end)
        return _Span(starts, block.bounds[stops])

    def _other_documents(self, keys: Keys, documents: Places, count: int) -> Places:
        if count == 1:
            return documents
        others = self._draws.documents(keys, count - 1)
        return others + (others >= documents)

    def _shortened(self, keys: Keys, first: _Span, second: _Span) -> tuple[_Span, _Span]:
        """Make pairs fit: the longer segment loses a token, at its front or its end, until they do.

        If both are equally long, the second loses it.
        """
        size, other = first.ends - first.starts, second.ends - second.starts
        excess = np.maximum(size + other - self._room, 0)
        lost = np.clip(size - other, 0, excess)
        other_lost = np.clip(other - size, 0, excess)
        both = excess - lost - other_lost
        lost, other_lost = lost + both // 2, other_lost + (both + 1) // 2
        front, other_front = self._draws.fronts(keys, lost, other_lost)
        return (
            _Span(first.starts + front, first.ends - (lost - front)),
            _Span(second.starts + other_front, second.ends - (other_lost - other_front)),
        )


def _cut(block: Block, draws: PairDraws) -> _Cuts:
    """Cut a block's documents into rows."""
    # A document has at most as many rows as sentences, so draws can be made for all at once.
    counts = np.diff(block.first)
    numbers = np.arange(len(block.bounds) - 1) - np.repeat(block.first[:-1], counts)
    keys = row_keys(np.repeat(block.keys, counts), numbers.astype(np.uint64), 0)
    targets = draws.targets(keys)
    cutter = _Cutter(
        block.bounds.tolist(),
        targets.tolist(),
        draws.is_random(keys).tolist(),
        draws.middles(keys).tolist(),
    )
    first = block.first.tolist()
    rows = [row for low, high in pairwise(first) for row in cutter.cut(low, high)]
    candidates, starts, middles, ends = np.array(rows, np.int64).reshape(-1, 4).T
    documents = np.searchsorted(block.first, candidates, side="right") - 1
    return _Cuts(documents, numbers[candidates], starts, middles, ends, targets[candidates])


class _Cutter(NamedTuple):
    """Cuts one document after the other; in plain numbers, as each row depends on the last one.

    The draws for row ``k`` of a document are at the index of its ``k``-th sentence: ``targets``,
    the row's tokens; ``is_random``, whether the second segment is random; ``middles``, in [0, 1),
    the share of the first segment.
    """

    bounds: list[int]
    targets: list[int]
    is_random: list[bool]
    middles: list[float]

    def cut(self, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the rows of sentences ``low`` to ``high``: index of draws, start, middle, end."""
        bounds = self.bounds
        sentence = low
        row = low - 1
        while sentence < high:
            row += 1
            wanted = bounds[sentence] + self.targets[row]
            stop = bisect_left(bounds, wanted, sentence + 1, high)
            middle = sentence + 1 + int(self.middles[row] * (stop - sentence - 1))
            if self.is_random[row]:
                yield row, bounds[sentence], bounds[middle], -1
                sentence = middle
            elif stop - sentence > 1:
                yield row, bounds[sentence], bounds[middle], bounds[stop]
                sentence = stop
            else:
                yield row, *self._single(sentence, low, high, row)
                sentence = min(stop + 1, high)

    def _single(self, sentence: int, low: int, high: int, row: int) -> tuple[int, int, int]:
        """Return a row whose target one sentence meets, or for which only one is left."""
        bounds = self.bounds
        if sentence + 1 < high:
            return bounds[sentence], bounds[sentence + 1], bounds[sentence + 2]
        if sentence > low:
            # The document ends: its last sentence follows the one before, which is used again.
            return bounds[sentence - 1], bounds[sentence], bounds[high]
        tokens = bounds[high] - bounds[low]
        if tokens == 1:
            # Nothing can follow within it.
            return bounds[low], bounds[high], -1
        return bounds[low], bounds[low] + 1 + int(self.middles[row] * (tokens - 1)), bounds[high]
