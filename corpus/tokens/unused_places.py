"""The ``[unused…]`` places of a WordPiece vocabulary, which words of a domain are put into."""

from __future__ import annotations

import re
from collections.abc import Iterable

from corpus.tokens.vocabulary import Vocabulary

_UNUSED = re.compile(r"\[unused\d+\]")


def with_domain_words(vocabulary: Vocabulary, words: Iterable[str]) -> Vocabulary:
    """Return a vocabulary with words in its first ``[unused…]`` places; all others stay."""
    places = (i for i, token in enumerate(vocabulary.tokens) if _UNUSED.fullmatch(token))
    tokens = list(vocabulary.tokens)
    for place, word in zip(places, words, strict=False):
        tokens[place] = word
    return Vocabulary(tuple(tokens))


def domain_words(given: Vocabulary, own: Vocabulary) -> list[str] | None:
    """Return the words by which a vocabulary differs from the given one that it was made of.

    :returns: None if it was not: something else than an unused place differs.
    """
    if given.kind != own.kind or len(given.tokens) != len(own.tokens):
        return None
    if given.kind != "wordpiece":
        return [] if given == own else None
    differ = [(a, b) for a, b in zip(given.tokens, own.tokens, strict=True) if a != b]
    return [b for _, b in differ] if all(_UNUSED.fullmatch(a) for a, _ in differ) else None


def unused_places(vocabulary: Vocabulary) -> int:
    """Return how many words a vocabulary can take."""
    return sum(_UNUSED.fullmatch(token) is not None for token in vocabulary.tokens)
