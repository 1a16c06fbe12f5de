"""The task ``neighbours``: does the second sentence follow the first one in a docstring?

If not, it is a sentence that follows another one, in half of the cases in the same module, so that
its subject alone does not reveal the label. As it always follows some sentence, neither does its
form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import sentencex

from local.demo.tasks.examples import SPLITS, Example, Task
from local.demo.tasks.modules import Docstring, Use, unit_interval

NAME = "neighbours"
NEIGHBOURS, APART = "neighbours", "apart"
SIZES = {Use.TRAIN: 8000, Use.VALIDATION: 1000, Use.TEST: 2000}
_WORDS = range(5, 41)


class Pair(NamedTuple):
    """Two consecutive sentences; ``module`` is their module, package included."""

    first: str
    second: str
    module: str


def build(docstrings: Iterable[Docstring]) -> Task:
    """Return the task, each split with at most :data:`SIZES` examples, half of each label."""
    found: dict[Use, list[Pair]] = defaultdict(list)
    for use, pair in _pairs(docstrings):
        found[use].append(pair)
    return Task(NAME, {split: list(_examples(found[split], SIZES[split])) for split in SPLITS})


def _pairs(docstrings: Iterable[Docstring]) -> Iterator[tuple[Use, Pair]]:
    """Yield all pairs of consecutive sentences; a repeated sentence is in no pair."""
    seen: set[str] = set()
    for docstring in docstrings:
        if docstring.use not in SPLITS:
            continue
        for paragraph in docstring.paragraphs:
            sentences = [text.strip() for text in sentencex.segment("en", paragraph)]
            usable = [len(text.split()) in _WORDS and text not in seen for text in sentences]
            seen.update(sentences)
            for (first, is_good), (second, also) in pairwise(zip(sentences, usable, strict=True)):
                if is_good and also:
                    place = f"{docstring.package}/{docstring.module}"
                    yield docstring.use, Pair(first, second, place)


def _examples(pairs: list[Pair], size: int) -> Iterator[Example]:
    pairs.sort(key=lambda pair: unit_interval(pair.first))
    modules: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        modules[pair.module].append(pair)
    for number, pair in enumerate(pairs[:size]):
        if number % 2 == 0:
            yield Example((pair.first, pair.second), NEIGHBOURS)
        else:
            candidates = modules[pair.module] if number % 4 == 1 else pairs
            yield Example((pair.first, _other(pair, candidates) or _other(pair, pairs)), APART)


def _other(pair: Pair, candidates: Sequence[Pair]) -> str:
    """Return the second sentence of another pair; empty if there is none."""
    start = int(unit_interval(pair.second) * len(candidates))
    others = (other.second for other in (*candidates[start:], *candidates[:start]))
    return next((text for text in others if text not in {pair.first, pair.second}), "")
