"""The task ``word-order``: is a sentence as it was written, or were two words swapped?

Only adjacent lowercase words are swapped, so that neither a capital letter nor a period reveals it.
No sentence occurs twice, not even in the other order, and none is in the pretraining text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import sentencex

from local.demo.tasks.examples import SPLITS, Example, Task
from local.demo.tasks.modules import Docstring, Use, unit_interval

NAME = "word-order"
AS_WRITTEN, SWAPPED = "as written", "swapped"
SIZES = {Use.TRAIN: 8000, Use.VALIDATION: 1000, Use.TEST: 2000}
_WORDS = range(8, 41)


class Changed(NamedTuple):
    """A sentence of the task, and the sentence as it was written."""

    sentence: str
    written: str


def build(docstrings: Iterable[Docstring]) -> Task:
    """Return the task, each split with at most :data:`SIZES` examples, half of each label."""
    found = changed(docstrings)
    return Task(NAME, {split: [_example(one) for one in found[split]] for split in SPLITS})


def changed(
    docstrings: Iterable[Docstring], *, most_words: int = _WORDS[-1]
) -> dict[Use, list[Changed]]:
    """Return at most :data:`SIZES` sentences of each split, every other of which is changed.

    :param most_words: maximum number of words of a sentence.
    """
    found: dict[Use, list[str]] = defaultdict(list)
    for use, sentence in _sentences(docstrings):
        if len(sentence.split()) <= most_words:
            found[use].append(sentence)
    return {split: list(_every_other(found[split], SIZES[split])) for split in SPLITS}


def _sentences(docstrings: Iterable[Docstring]) -> Iterator[tuple[Use, str]]:
    """Yield each usable sentence once."""
    # Docstrings for pretraining come first, so that their sentences are excluded.
    in_order = sorted(docstrings, key=lambda docstring: docstring.use in SPLITS)
    seen: set[str] = set()
    for docstring in in_order:
        for paragraph in docstring.paragraphs:
            for words in (text.split() for text in sentencex.segment("en", paragraph)):
                sentence = " ".join(words)
                is_new = sentence not in seen
                seen.add(sentence)
                if is_new and docstring.use in SPLITS and len(words) in _WORDS and _places(words):
                    yield docstring.use, sentence


def _every_other(sentences: list[str], size: int) -> Iterator[Changed]:
    for number, sentence in enumerate(sorted(sentences, key=unit_interval)[:size]):
        yield Changed(sentence if number % 2 == 0 else _swapped(sentence), sentence)


def _example(one: Changed) -> Example:
    label = AS_WRITTEN if one.sentence == one.written else SWAPPED
    return Example((one.sentence,), label)


def _swapped(sentence: str) -> str:
    words = sentence.split()
    places = _places(words)
    place = places[int(unit_interval(f"swapped {sentence}") * len(places))]
    words[place : place + 2] = words[place + 1], words[place]
    return " ".join(words)


def _places(words: list[str]) -> list[int]:
    """Return positions where a word and the next may be swapped: not at the ends, not names."""
    return [
        place
        for place, pair in enumerate(pairwise(words))
        if 0 < place < len(words) - 2
        and pair[0] != pair[1]
        and all(word.isalpha() and word.islower() for word in pair)
    ]
