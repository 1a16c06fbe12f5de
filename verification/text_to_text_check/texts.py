"""Three text-to-text tasks, made from installed docstrings outside the pretraining text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import sentencex

from local.demo.installed_text import paragraphs
from local.demo.tasks import docstrings, word_order
from local.demo.tasks.examples import SPLITS
from local.demo.tasks.modules import Docstring, Use, unit_interval
from pipeline_config.text_to_text import TargetKind, TextMetric
from trained_models.text_to_text.metrics import plain, rouge_l

PACKAGE, FIRST_LINE, RESTORE = "package", "first-line", "restore"
SIZES = {Use.TRAIN: 8000, Use.VALIDATION: 500, Use.TEST: 1000}
"""Maximum number of examples per split."""
QUICK_SIZES = {Use.TRAIN: 160, Use.VALIDATION: 32, Use.TEST: 48}
_BODY_WORDS = 40
_MIN_BODY_WORDS = 8
_SENTENCE_WORDS = 16


class Pair(NamedTuple):
    """A text, and the text to generate for it."""

    text: str
    target: str


@dataclass(frozen=True)
class TextTask:
    """A task in memory.

    :param metric: metric by which initial weights are compared.
    :param simple: name of a simple method, and its output for each test text.
    """

    name: str
    target: TargetKind
    metric: TextMetric
    splits: dict[Use, list[Pair]]
    simple: tuple[str, list[str]]

    @property
    def baseline(self) -> float:
        """Return the simple method's mean score."""
        test = self.splits[Use.TEST]
        each = scores(self.metric, self.simple[1], [pair.target for pair in test])
        return sum(each) / len(each)


def scores(metric: TextMetric, outputs: Iterable[str], targets: Iterable[str]) -> list[float]:
    """Return the score of each output, from 0 to 1."""
    pairs = zip(outputs, targets, strict=True)
    if metric == "rouge_l":
        return [rouge_l(output, target) for output, target in pairs]
    return [float(plain(output) == plain(target)) for output, target in pairs]


def tasks(found: Iterable[Docstring], sizes: dict[Use, int]) -> list[TextTask]:
    """Return the tasks.

    ``package``: which package is a docstring from? ``first-line``: write the first line of a
    docstring that is given without its first paragraph. ``restore``: restore a sentence in which,
    in half of the cases, two words were swapped.

    :param sizes: maximum number of examples of each split.
    """
    kept = list(found)
    made = [_package(kept), _first_line(kept), _restore(kept)]
    return [_shortened(task, sizes) for task in made]


def _package(found: list[Docstring]) -> TextTask:
    task = docstrings.build(found)
    splits = {
        split: [Pair(example.texts[0], example.label) for example in task.splits[split]]
        for split in SPLITS
    }
    ((most, _),) = Counter(pair.target for pair in splits[Use.TRAIN]).most_common(1)
    return TextTask(
        PACKAGE, "label", "accuracy", splits, ("majority", [most] * len(splits[Use.TEST]))
    )


def _first_line(found: list[Docstring]) -> TextTask:
    """Return the task ``first-line``; no first line occurs twice or in the pretraining text."""
    seen: set[str] = set()
    splits: dict[Use, list[Pair]] = {split: [] for split in SPLITS}
    # Docstrings for pretraining come first, so that their first lines are excluded.
    for one in sorted(found, key=lambda one: one.use in SPLITS):
        words = " ".join(one.body).split()[:_BODY_WORDS]
        # Yields no line unless it is prose.
        for line in paragraphs(one.first_line):
            is_new = line not in seen
            seen.add(line)
            if is_new and one.use in SPLITS and len(words) >= _MIN_BODY_WORDS:
                splits[one.use].append(Pair(" ".join(words), line))
    for pairs in splits.values():
        pairs.sort(key=lambda pair: unit_interval(pair.text))
    leads = [next(iter(sentencex.segment("en", pair.text))) for pair in splits[Use.TEST]]
    return TextTask(FIRST_LINE, "text", "rouge_l", splits, ("lead sentence", leads))


def _restore(found: list[Docstring]) -> TextTask:
    made = word_order.changed(found, most_words=_SENTENCE_WORDS)
    splits = {split: [Pair(*one) for one in made[split]] for split in SPLITS}
    copies = [pair.text for pair in splits[Use.TEST]]
    return TextTask(RESTORE, "text", "exact_match", splits, ("copying", copies))


def _shortened(task: TextTask, sizes: dict[Use, int]) -> TextTask:
    splits = {split: pairs[: sizes[split]] for split, pairs in task.splits.items()}
    name, outputs = task.simple
    simple = (name, outputs[: sizes[Use.TEST]])
    return TextTask(task.name, task.target, task.metric, splits, simple)


def write(task: TextTask, folder: Path) -> None:
    """Write the splits as JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in task.splits.items():
        lines = [json.dumps(pair._asdict()) + "\n" for pair in pairs]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
