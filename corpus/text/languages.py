"""Recognizes the language of a document, from a sample of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from corpus.errors import UserError

# Classifying text is slow, and more of it rarely changes the answer.
_PARTS = 3
_PART_CHARACTERS = 120


class LanguageFilter:
    """Keeps documents in some languages.

    :param languages: ISO 639 codes.
    :raises UserError: one of them cannot be recognized; the message lists those that can.
    """

    def __init__(self, languages: Sequence[str]) -> None:
        known = sorted(_identifier().labels)
        unknown = sorted(set(languages) - set(known))
        if unknown:
            raise UserError(
                f"corpus.keep_languages: {', '.join(unknown)} cannot be recognized; "
                f"give some of: {' '.join(known)}."
            )
        self._languages = frozenset(languages)

    def keeps(self, text: str) -> bool:
        """Return whether a text is in one of the languages."""
        return language_of(text) in self._languages


def language_of(text: str) -> str:
    """Return the ISO 639 code of the language that a text most likely is in."""
    return str(_identifier().classify(_sample(text))[0])


def _sample(text: str) -> str:
    """Return a text, or three pieces spread over it: a beginning is often unlike the rest."""
    if len(text) <= _PARTS * _PART_CHARACTERS:
        return text
    last = len(text) - _PART_CHARACTERS
    starts = (last * part // (_PARTS - 1) for part in range(_PARTS))
    return " ".join(text[start : start + _PART_CHARACTERS] for start in starts)


@cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE)
