"""Results of methods on a test split, and comparisons of two methods."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# 95 % of a normal distribution lie within this many standard deviations.
_TWO_SIDED_95 = 1.96


@dataclass(frozen=True)
class Result:
    """The result of a method on N test examples, over several seeds if it is random.

    :param accuracy: by seed.
    :param macro_f1: by seed.
    :param right: float64 [N], the share of seeds that are correct on each example.
    """

    name: str
    accuracy: list[float]
    macro_f1: list[float]
    right: npt.NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Return the mean accuracy."""
        return statistics.fmean(self.accuracy)

    @property
    def deviation(self) -> float:
        """Return the accuracies' sample standard deviation; 0 for one seed."""
        return statistics.stdev(self.accuracy) if len(self.accuracy) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """The difference in accuracy of two methods; ``low`` to ``high`` is its interval."""

    name: str
    other: str
    difference: float
    low: float
    high: float

    @property
    def beats(self) -> bool:
        """Return whether the whole interval is above 0."""
        return self.low > 0.0

    def __str__(self) -> str:
        not_better = "is beaten by" if self.high < 0.0 else "does not beat"
        verb = "beats" if self.beats else not_better
        points = [f"{100 * value:+.1f}" for value in (self.difference, self.low, self.high)]
        return (
            f"{self.name} {verb} {self.other}: {points[0]} points of accuracy (95 % interval of "
            f"the test examples: {points[1]} to {points[2]})."
        )


def compare(result: Result, other: Result) -> Comparison:
    """Return the paired comparison of two methods on the same examples.

    The interval is for the mean of the differences (normal approximation).
    """
    differences = result.right - other.right
    mean = float(differences.mean())
    width = _TWO_SIDED_95 * float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return Comparison(result.name, other.name, mean, mean - width, mean + width)
