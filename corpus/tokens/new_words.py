"""Counts the words that a vocabulary does not have whole."""

from __future__ import annotations

from collections.abc import Iterable

# What is kept between blocks of text: far more than anybody will read, and a megabyte.
_KEPT = 10_000


class NewWords:
    """Counts words; the result does not depend on how the text was cut for the tokenizer.

    :param kept: words that remain when it is pruned.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._counts: dict[str, int] = {}

    def add(self, counts: Iterable[tuple[str, int]]) -> None:
        """Count occurrences: pairs of words, with spaces between them, and a number."""
        sums = self._counts
        for words, count in counts:
            for word in words.split(" "):
                sums[word] = sums.get(word, 0) + count

    def prune(self) -> None:
        """Forget rare words. Called at the ends of blocks that follow from the text alone."""
        if len(self._counts) > self._kept:
            self._counts = self.top(self._kept)

    def top(self, count: int) -> dict[str, int]:
        """Return the most frequent words, of equal counts those that sort first."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return dict(ranked[:count])
