"""The task ``word-order``: is a sentence as it was written, or have two words changed places?

Only neighbours in small letters do, so that neither a capital letter nor a full stop tells.
No sentence is there twice, not in the other order either, and none is in text that is pre-trained
on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

import sentencex

from local.demo.tasks.examples import SPLITS, Example, Task
from local.demo.tasks.modules import Docstring, Use, unit_interval

NAME = "word-order"
AS_WRITTEN, SWAPPED = "as written", "swapped"
SIZES = {Use.TRAIN: 8000, Use.VALIDATION: 1000, Use.TEST: 2000}
_WORDS = range(8, 41)


def build(docstrings: Iterable[Docstring]) -> Task:
    """Return the task, each split with at most :data:`SIZES` examples, half of each label."""
    found: dict[Use, list[str]] = defaultdict(list)
    for use, sentence in _sentences(docstrings):
        found[use].append(sentence)
    return Task(NAME, {split: list(_examples(found[split], SIZES[split])) for split in SPLITS})


def _sentences(docstrings: Iterable[Docstring]) -> Iterator[tuple[Use, str]]:
    """Yield each sentence that can be used once."""
    # Those that are pre-trained on come first, and so are used up.
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


def _examples(sentences: list[str], size: int) -> Iterator[Example]:
    for number, sentence in enumerate(sorted(sentences, key=unit_interval)[:size]):
        if number % 2 == 0:
            yield Example((sentence,), AS_WRITTEN)
        else:
            yield Example((_swapped(sentence),), SWAPPED)


def _swapped(sentence: str) -> str:
    words = sentence.split()
    places = _places(words)
    place = places[int(unit_interval(f"swapped {sentence}") * len(places))]
    words[place : place + 2] = words[place + 1], words[place]
    return " ".join(words)


def _places(words: list[str]) -> list[int]:
    """Return where a word and the next may change places: not at the ends, and not names."""
    return [
        place
        for place, pair in enumerate(pairwise(words))
        if 0 < place < len(words) - 2
        and pair[0] != pair[1]
        and all(word.isalpha() and word.islower() for word in pair)
    ]
