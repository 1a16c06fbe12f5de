"""The task ``docstrings``: which package is a docstring from?

Words that reveal a package are masked: its name, words that contain it, short names, and dotted
paths. Docstrings that resemble an earlier one are left out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from local.demo.tasks.examples import SPLITS, Example, Task
from local.demo.tasks.modules import Docstring, Use, unit_interval

NAME = "docstrings"
PER_PACKAGE = {Use.TRAIN: 250, Use.VALIDATION: 50, Use.TEST: 100}
MASK = "name"
_NAMES = (
    *("airflow", "apache", "beam", "google", "gcp", "keras", "matplotlib", "pyplot", "numpy"),
    *("pandas", "python", "scipy", "scikit", "sklearn", "sqlalchemy", "tensorflow"),
)
_SHORT_NAMES = {"mpl", "np", "pd", "plt", "sa", "tf", "tfe"}
_WORD = re.compile(r"\w+(?:[.-]\w+)*")
_PATH = re.compile(r"\w\.\w")
_MIN_WORDS = 8
_MAX_WORDS = 40
_SHINGLE_WORDS = 4
_MAX_KNOWN_SHARE = 0.5


def build(docstrings: Iterable[Docstring]) -> Task:
    """Return the task; ``python`` is the label of the standard library.

    Each split has at most :data:`PER_PACKAGE` examples of a label, in mixed order.
    """
    found: dict[Use, list[Example]] = defaultdict(list)
    for docstring, text in _different(docstrings):
        found[docstring.use].append(Example((text,), docstring.package))
    return Task(NAME, {split: _balanced(found[split], PER_PACKAGE[split]) for split in SPLITS})


def _different(docstrings: Iterable[Docstring]) -> Iterator[tuple[Docstring, str]]:
    """Yield the texts of which at most half of the word n-grams occurred before."""
    seen: set[tuple[str, ...]] = set()
    for docstring in docstrings:
        if docstring.use not in SPLITS:
            continue
        words = masked(" ".join(docstring.paragraphs)).split()[:_MAX_WORDS]
        if len(words) < _MIN_WORDS:
            continue
        lower = [word.lower() for word in words]
        shingles = set(zip(*(lower[start:] for start in range(_SHINGLE_WORDS)), strict=False))
        if len(shingles & seen) <= _MAX_KNOWN_SHARE * len(shingles):
            yield docstring, " ".join(words)
        seen |= shingles


def masked(text: str) -> str:
    """Return the text with :data:`MASK` for every word that names a package or a path in one."""
    return _WORD.sub(_mask, text)


def _mask(match: re.Match[str]) -> str:
    word = match[0].lower()
    names = word in _SHORT_NAMES or _PATH.search(word) or any(name in word for name in _NAMES)
    return MASK if names else match[0]


def _balanced(examples: list[Example], most: int) -> list[Example]:
    counts: Counter[str] = Counter()
    chosen = []
    for example in sorted(examples, key=lambda example: unit_interval(example.texts[0])):
        counts[example.label] += 1
        if counts[example.label] <= most:
            chosen.append(example)
    return chosen
