"""Stores the measurements, so that the check can resume, and evaluates the criteria."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from trained_models.downstream.intervals import Difference, difference_of
from trained_models.downstream.measures import Measure
from verification.checks import Line, Lines
from verification.text_to_text_check.recipe import SECONDS, SHAPE

PRETRAINED, RANDOM = "pretrained", "random"
"""Initial weights of a fine-tuning."""
OURS, PYTORCH = "ours", "pytorch"
"""The trainers."""
IMPROVED = 2
"""Minimum number of tasks that pretraining must improve."""
LEVEL = 0.05
"""Level of the two-sided test of whether two means differ by more than seeds do."""


@dataclass(frozen=True)
class Results:
    """A file with a line of JSON for each training, with the score of each test example."""

    path: Path

    def lines(self) -> list[Line]:
        """Return the lines measured so far."""
        return Lines(self.path).read()

    def has(self, **wanted: Any) -> bool:
        """Return whether there is a line with these fields."""
        return any(wanted.items() <= line.items() for line in self.lines())

    def add(self, line: Line) -> None:
        """Store a line, and print it without the examples' scores."""
        Lines(self.path).add(line)
        show({name: value for name, value in line.items() if name != "scores"})


def show(line: Line) -> None:
    """Print a line of JSON."""
    print(json.dumps(line), flush=True)


def scores_of(
    lines: Sequence[Line], task: str, side: str, start: str
) -> dict[int, npt.NDArray[np.float64]]:
    """Return the score of each test example, [N], by seed."""
    wanted = {"task": task, "side": side, "start": start}
    found = [line for line in lines if wanted.items() <= line.items()]
    return {line["seed"]: np.array(line["scores"], float) for line in found}


def comparison(lines: Sequence[Line], task: str) -> Difference | None:
    """Return how much better the pretrained start is than random ones; None: not measured.

    The interval is over examples and seeds, as in the reports of fine-tuning.
    """
    ours, random = (scores_of(lines, task, OURS, start) for start in (PRETRAINED, RANDOM))
    seeds = sorted(ours.keys() & random.keys())
    if not seeds:
        return None
    values = [side[seed] for side in (ours, random) for seed in seeds]
    return difference_of(
        [_mean_of(ours[seed]) for seed in seeds],
        [_mean_of(random[seed]) for seed in seeds],
        len(values[0]),
        is_of_decisions=all(set(np.unique(one)) <= {0.0, 1.0} for one in values),
    )


def _mean_of(values: npt.NDArray[np.float64]) -> Measure:
    return lambda weights: weights @ values / weights.sum(axis=1)


def criteria(lines: Sequence[Line], tasks: Sequence[str]) -> Iterator[Line]:
    """Yield the criteria that the lines allow: ``name``, ``value``, ``limit``, ``holds``."""
    found = {task: comparison(lines, task) for task in tasks}
    known = {task: one for task, one in found.items() if one is not None}
    for task, one in known.items():
        values = {name: round(value, 4) for name, value in one._asdict().items()}
        yield {"name": f"{SHAPE}_{task}_pretrained_minus_random", **values}
    # With fewer tasks it would be weaker than it looks.
    if len(known) > IMPROVED:
        count = sum(one.low > 0.0 for one in known.values())
        yield _row("tasks_improved_by_pretraining", count, IMPROVED, holds=count >= IMPROVED)
    for task in tasks:
        yield from _against_pytorch(lines, task)
    ours = [line["seconds"] for line in lines if line["side"] == OURS]
    if ours:
        longest = max(ours)
        yield _row("longest_training_seconds", longest, SECONDS, holds=longest <= SECONDS)


def _against_pytorch(lines: Sequence[Line], task: str) -> Iterator[Line]:
    """Yield whether the means of both sides differ by no more than seeds do (Welch's test)."""
    sides = [scores_of(lines, task, side, PRETRAINED) for side in (OURS, PYTORCH)]
    ours, theirs = ([float(one.mean()) for one in side.values()] for side in sides)
    if min(len(ours), len(theirs)) < 2:
        return
    # Equal values without any spread need no test.
    p = 1.0 if ours == theirs else float(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)
    more = {
        "ours": round(statistics.fmean(ours), 4),
        "pytorch": round(statistics.fmean(theirs), 4),
        "deviation": round(statistics.stdev(ours), 4),
        "pytorch_deviation": round(statistics.stdev(theirs), 4),
        "seeds": [len(ours), len(theirs)],
    }
    # A comparison with NaN is false.
    yield _row(f"{task}_same_as_pytorch_p", round(p, 4), LEVEL, holds=p > LEVEL) | more


def _row(name: str, value: float, limit: float, *, holds: bool) -> Line:
    return {"name": f"{SHAPE}_{name}", "value": value, "limit": limit, "holds": holds}
