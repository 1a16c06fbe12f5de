"""Two fine-tuned models whose true difference is known: classifiers of simulated examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_config.task import MetricName, TaskKind
from pipeline_store.formats import PaidVerdict
from trained_models.downstream.intervals import Difference, difference


@dataclass(frozen=True)
class World:
    """How examples, models and seeds make a prediction. All in units of a logit.

    Examples are hard or easy for everybody, and one model does better on some than the other. Each
    seed has a level of its own, and an opinion of its own on each example. With the defaults about
    three of four examples are classified rightly.

    :param better: by how much the model is better than its reference.
    :param level: deviation of the seeds' levels.
    :param opinion: that of what a seed thinks of each example.
    """

    examples: int
    seeds: int
    better: float = 0.0
    level: float = 0.1
    opinion: float = 1.0
    labels: int = 3

    def outputs(self, seed: int) -> tuple[npt.NDArray[Any], list[list[npt.NDArray[Any]]]]:
        """Return the right labels, and of model and reference the outputs by seed."""
        random = np.random.default_rng(seed)
        right = random.integers(0, self.labels, self.examples)
        ease = random.normal(1.5, 2.0, self.examples)
        # Each takes a hard example for the same wrong label as often as not.
        wrong = (right + random.integers(1, self.labels, self.examples)) % self.labels
        sides = []
        for gain in (self.better, 0.0):
            taste = random.normal(0.0, 0.7, self.examples)
            side = []
            for _ in range(self.seeds):
                level = random.normal(0.0, self.level)
                opinion = random.normal(0.0, self.opinion, self.examples)
                outputs = np.full((self.examples, self.labels), -20.0)
                rows = np.arange(self.examples)
                outputs[rows, wrong] = 0.0
                outputs[rows, right] = ease + taste + gain + level + opinion
                side.append(outputs)
            sides.append(side)
        return right, sides

    def regression(self, seed: int) -> tuple[npt.NDArray[Any], list[list[npt.NDArray[Any]]]]:
        """Return the same of a regression: numbers, and predictions that are off by so much."""
        random = np.random.default_rng(seed)
        right = random.normal(size=self.examples)
        taste = random.normal(size=(2, self.examples))
        return right, [
            [
                (
                    (1 + gain + random.normal(0, self.level)) * right
                    + taste[side]
                    + random.normal(size=self.examples)
                )[:, np.newaxis]
                for _ in range(self.seeds)
            ]
            for side, gain in enumerate((self.better, 0.0))
        ]

    def compared(
        self, seed: int, metric: MetricName = "accuracy", kind: TaskKind = "classification"
    ) -> Difference:
        """Return what a comparison finds."""
        make = self.regression if kind == "regression" else self.outputs
        labels, (model, reference) = make(seed)
        return difference(kind, metric, labels, model, reference)


def verdict(found: Difference) -> PaidVerdict:
    """Return what is said of a difference."""
    if found.low > 0:
        return PaidVerdict.HELPED
    return PaidVerdict.HURT if found.high < 0 else PaidVerdict.NO_EVIDENCE
