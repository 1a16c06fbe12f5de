"""What a method reaches on a test split, and whether one method is better than another."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Of the normal distribution: 95 % lie within so many standard deviations.
_TWO_SIDED_95 = 1.96


@dataclass(frozen=True)
class Result:
    """A method on N test examples; of several seeds if it is random.

    :param accuracy: by seed.
    :param macro_f1: by seed.
    :param right: float64 [N], the share of the seeds that are right on each example.
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
        """Return the accuracies' sample standard deviation; of one seed 0."""
        return statistics.stdev(self.accuracy) if len(self.accuracy) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """How much more often one method is right than another; ``low`` to ``high`` is the interval."""

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
    """Return how two methods differ on the same examples, pair by pair.

    The interval is that of the mean of the differences (normal approximation).
    """
    differences = result.right - other.right
    mean = float(differences.mean())
    width = _TWO_SIDED_95 * float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return Comparison(result.name, other.name, mean, mean - width, mean + width)
