"""Work of different sizes, shared out among workers that cannot take it from each other."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def spread(items: Sequence[Item], sizes: Sequence[int], slots: int) -> Iterator[tuple[int, Item]]:
    """Yield the items with the number of the slot that each is for, the largest items first.

    Each goes to the slot with the least work so far (Graham, "Bounds on multiprocessing timing
    anomalies", 1969): no slot gets more than 4/3 of what the best division would give it. The
    slots' numbers appear in order, so that an engine that deals keys out in turn gives each of its
    workers one.
    """
    loads = [(0, slot) for slot in range(slots)]
    by_size = sorted(range(len(items)), key=lambda number: (-sizes[number], number))
    for number in by_size:
        load, slot = heapq.heappop(loads)
        heapq.heappush(loads, (load + max(1, sizes[number]), slot))
        yield slot, items[number]
