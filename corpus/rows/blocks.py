"""Divides a shard, alike in every run, into blocks of documents that share second segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corpus.rows.plans import Documents, Ids, Keys, Places

# It bounds the memory. Part of the recipe: another number makes other rows.
BLOCK_TOKENS = 1 << 20
# A document needs another one besides itself.
_LEAST_DOCUMENTS = 2


class Block(NamedTuple):
    """D documents by their N sentences.

    ``bounds`` [N + 1]: where each sentence begins in ``ids``, and where the last one ends.
    ``first`` [D + 1]: number of each document's first sentence, and how many sentences there are.
    """

    ids: Ids
    bounds: Places
    first: Places
    keys: Keys

    def part(self, start: int, stop: int) -> Block:
        """Return the documents from ``start`` up to ``stop``."""
        first = self.first[start : stop + 1]
        bounds = self.bounds[first[0] : first[-1] + 1]
        ids = self.ids[bounds[0] : bounds[-1]]
        return Block(ids, bounds - bounds[0], first - first[0], self.keys[start:stop])

    def divided(self, room: int) -> Block:
        """Return the block with sentences of over ``room`` tokens cut into halves of a row.

        Otherwise little would be left of them, or of text without sentence ends.
        """
        half = (room + 1) // 2
        sizes = np.diff(self.bounds)
        parts = np.where(sizes > room, -(-sizes // half), 1)
        before = np.cumsum(parts) - parts
        part = np.arange(int(parts.sum())) - np.repeat(before, parts)
        return Block(
            self.ids,
            np.append(np.repeat(self.bounds[:-1], parts) + part * half, self.bounds[-1]),
            np.append(before, len(part))[self.first],
            self.keys,
        )


class BlockCollector:
    """Collects documents until they are enough for a block.

    A block ends with the document that makes it large enough, unless less than another block would
    be left. So blocks do not depend on how the documents are batched.
    """

    def __init__(self, block_tokens: int = BLOCK_TOKENS) -> None:
        self._block_tokens = block_tokens
        self._waiting: list[Block] = []

    def add(self, documents: Documents) -> list[Block]:
        """Return the blocks that are complete with these documents."""
        if len(documents.keys):
            self._waiting.append(_block_of(documents))
        blocks: list[Block] = []
        if sum(len(block.ids) for block in self._waiting) < 2 * self._block_tokens:
            return blocks
        rest = _joined(self._waiting)
        while (count := self._size_of_next(rest)) is not None:
            blocks.append(rest.part(0, count))
            rest = rest.part(count, len(rest.keys))
        self._waiting = [rest]
        return blocks

    def finish(self) -> list[Block]:
        """Return the last block, if any document is left."""
        blocks = [_joined(self._waiting)] if self._waiting else []
        self._waiting = []
        return blocks

    def _size_of_next(self, block: Block) -> int | None:
        """Return how many documents make a block, or None if too little follows them."""
        ends = block.bounds[block.first[1:]]
        enough = int(np.searchsorted(ends, self._block_tokens)) + 1
        count = max(enough, _LEAST_DOCUMENTS)
        if count + _LEAST_DOCUMENTS > len(ends):
            return None
        return count if ends[-1] - ends[count - 1] >= self._block_tokens else None


def _block_of(documents: Documents) -> Block:
    """Copy documents out of their batch."""
    sizes = documents.ends - documents.starts
    stops = np.cumsum(sizes)
    # How far each document moves to the front.
    shifts = documents.starts - (stops - sizes)
    ids = documents.ids[np.arange(int(stops[-1])) + np.repeat(shifts, sizes)]
    ends = documents.sentence_ends
    low = np.searchsorted(ends, documents.starts, side="right")
    counts = np.searchsorted(ends, documents.ends, side="right") - low
    first = np.append(0, np.cumsum(counts))
    numbers = np.arange(first[-1]) + np.repeat(low - first[:-1], counts)
    return Block(
        ids, np.append(0, ends[numbers] - np.repeat(shifts, counts)), first, documents.keys
    )


def _joined(blocks: Sequence[Block]) -> Block:
    """Return the documents of several blocks as one."""
    tokens = np.cumsum([0, *(len(block.ids) for block in blocks)])
    sentences = np.cumsum([0, *(block.first[-1] for block in blocks)])
    bounds = [block.bounds[1:] + start for block, start in zip(blocks, tokens, strict=False)]
    first = [block.first[1:] + start for block, start in zip(blocks, sentences, strict=False)]
    return Block(
        np.concatenate([block.ids for block in blocks]),
        np.concatenate([[0], *bounds]),
        np.concatenate([[0], *first]),
        np.concatenate([block.keys for block in blocks]),
    )
