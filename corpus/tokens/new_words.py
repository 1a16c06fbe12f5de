"""Counts words that a vocabulary does not have whole, and finds the frequent ones of a text."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpus.tokens.tokenizing import Tokenizer

logger = logging.getLogger(__name__)

# Words kept between blocks of text: far more than anybody will read, and a megabyte.
_KEPT = 10_000
# Rarer words are not seen often enough to train their row of the embedding well.
MIN_COUNT = 20
_PIECES_AT_ONCE = 256
# Words remembered between blocks of this many pieces; rarer ones cannot be among the first anyway.
_KEPT_WORDS = 200_000
_PIECES_PER_BLOCK = 64 * _PIECES_AT_ONCE


class NewWords:
    """Counts words; the result does not depend on how the text was cut for the tokenizer.

    :param kept: number of words that remain after pruning.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._counts: dict[str, int] = {}

    def add(self, counts: Iterable[tuple[str, int]]) -> None:
        """Add counts, which are pairs of space-separated words and their number."""
        sums = self._counts
        for words, count in counts:
            for word in words.split(" "):
                sums[word] = sums.get(word, 0) + count

    def prune(self) -> None:
        """Forget rare words. Called at the ends of blocks, which depend on the text alone."""
        if len(self._counts) > self._kept:
            self._counts = self.top(self._kept)

    def top(self, count: int) -> dict[str, int]:
        """Return the most frequent words, of equal counts those that sort first."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return dict(ranked[:count])


def find_domain_words(pieces: Iterable[str], tokenizer: Tokenizer, count: int) -> list[str]:
    """Return the most frequent words that the tokenizer splits or does not know.

    Only words of letters that occur at least :data:`MIN_COUNT` times are taken. Of words that occur
    equally often, those that sort first are taken.
    """
    words = NewWords(kept=_KEPT_WORDS)
    for number, batch in enumerate(_batches(pieces), 1):
        tokenizer.encode(batch, words)
        if number % (_PIECES_PER_BLOCK // _PIECES_AT_ONCE) == 0:
            words.prune()
    frequent = {
        word: times
        for word, times in words.top(_KEPT_WORDS).items()
        if word.isalpha() and times >= MIN_COUNT
    }
    found = list(islice(frequent, count))
    if found:
        # Words of the corpus are not logged. The lineage's vocabulary.json lists them.
        logger.info("%d domain words, the most frequent %d times", len(found), frequent[found[0]])
    if len(found) < count:
        logger.warning(
            "only %d of %d domain words: no more words of letters occur %d times and are split",
            len(found),
            count,
            MIN_COUNT,
        )
    return found


def _batches(pieces: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(pieces)
    while batch := list(islice(iterator, _PIECES_AT_ONCE)):
        yield batch
