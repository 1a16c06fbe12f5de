"""An exact hash table from short byte strings to numbers, looked up in whole arrays at once.

A Python dictionary takes 50 to 100 ns per word, because every word has to become an object first.
Here a word is one or more 64-bit integers that are read in place from the text, and all words of a
text are looked up by a handful of array operations, at about a tenth of that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

_FIRST_CAPACITY = 1 << 14
# A word that is not found within this many slots counts as missing, and is not inserted: text that
# was made to collide costs time, but a bounded amount. By chance, one word in millions gets so far.
_MAX_PROBES = 64
# Odd, without pattern: the golden ratio, then the multipliers of SplitMix64 and of Murmur 3.
_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xFF51AFD7ED558CCD], np.uint64
)


class WordTable:
    """Open addressing with linear probing; a key is ``width`` integers, not all of them zero.

    Keys are compared whole, so a collision of hashes costs a step and never gives a wrong number.

    :param width: at most 4.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._allocate(_FIRST_CAPACITY)

    def _allocate(self, capacity: int) -> None:
        self._count = 0
        self._shift = np.uint64(64 - capacity.bit_length() + 1)
        self._mask = capacity - 1
        # A key of zeros marks a slot as empty; its number is -1.
        self._keys = np.zeros((self._width, capacity), np.uint64)
        self._numbers = np.full(capacity, -1, np.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def capacity(self) -> int:
        """Slots; memory is ``8 * width + 4`` bytes each."""
        return self._mask + 1

    def find(self, keys: Keys) -> Numbers:
        """Return the number of each key, -1 where it is missing.

        :param keys: ``[width, n]``; a key of zeros is always missing.
        """
        slots = self._first_slots(keys)
        numbers = self._numbers.take(slots)
        pending = np.flatnonzero(self._differ(keys, slots))
        for _ in range(_MAX_PROBES):
            # An empty slot ends the search, and its number says so already.
            pending = pending[numbers[pending] >= 0]
            if not len(pending):
                return numbers
            slots[pending] = (slots[pending] + 1) & self._mask
            numbers[pending] = self._numbers.take(slots[pending])
            pending = pending[self._differ(keys[:, pending], slots[pending])]
        numbers[pending] = -1
        return numbers

    def insert(self, keys: Keys, numbers: Numbers) -> None:
        """Insert keys that are missing and differ from each other.

        :param keys: ``[width, n]``.
        :param numbers: ``[n]``, not negative.
        """
        self._make_room(keys.shape[1])
        slots = self._first_slots(keys)
        pending = np.arange(keys.shape[1])
        for _ in range(_MAX_PROBES):
            here = slots[pending]
            free = self._numbers[here] < 0
            trying, wanted = pending[free], here[free]
            # If several want a slot, the last one written gets it.
            self._numbers[wanted] = numbers[trying]
            won = self._numbers[wanted] == numbers[trying]
            self._keys[:, wanted[won]] = keys[:, trying[won]]
            self._count += int(won.sum())
            pending = np.concatenate([pending[~free], trying[~won]])
            if not len(pending):
                return
            slots[pending] = (slots[pending] + 1) & self._mask

    def renumbered(self, numbers: Numbers) -> WordTable:
        """Return a table with other numbers; words whose new number is negative are left out."""
        taken = np.flatnonzero(self._numbers >= 0)
        new = numbers[self._numbers[taken]]
        table = WordTable(self._width)
        table.insert(self._keys[:, taken[new >= 0]], new[new >= 0])
        return table

    def _make_room(self, more: int) -> None:
        """Grow so that at most half of the slots are taken."""
        capacity = self.capacity
        while 2 * (self._count + more) > capacity:
            capacity *= 2
        if capacity > self.capacity:
            taken = self._numbers >= 0
            keys, numbers = self._keys[:, taken], self._numbers[taken]
            self._allocate(capacity)
            self.insert(keys, numbers)

    def _first_slots(self, keys: Keys) -> npt.NDArray[np.int64]:
        mixed = keys[0] ^ (keys[0] >> np.uint64(32))
        for column, multiplier in zip(keys[1:], _MULTIPLIERS[1:], strict=False):
            mixed = (mixed ^ (mixed >> np.uint64(29))) + column * multiplier
        return ((mixed * _MULTIPLIERS[0]) >> self._shift).view(np.int64)

    def _differ(self, keys: Keys, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        differ = self._keys[0].take(slots) != keys[0]
        for stored, column in zip(self._keys[1:], keys[1:], strict=True):
            differ |= stored.take(slots) != column
        return differ
