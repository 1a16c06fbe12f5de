"""Finds the frequent words of a text that a vocabulary does not have."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice

from corpus.tokens.new_words import NewWords
from corpus.tokens.tokenizing import Tokenizer

logger = logging.getLogger(__name__)

# Rarer words are not seen often enough for their row of the embedding to become any good.
MIN_COUNT = 20
_PIECES_AT_ONCE = 256
# Words remembered between blocks of this many pieces; rarer ones cannot be among the first anyway.
_KEPT_WORDS = 200_000
_PIECES_PER_BLOCK = 64 * _PIECES_AT_ONCE


def find_domain_words(pieces: Iterable[str], tokenizer: Tokenizer, count: int) -> list[str]:
    """Return the most frequent words that the tokenizer splits or does not know.

    Only words of letters are taken, that occur at least :data:`MIN_COUNT` times. Of words that
    occur equally often, those that sort first are.
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
        # Not which: they are words of the corpus. The lineage's vocabulary.json lists them.
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
