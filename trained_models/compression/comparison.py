"""Compares a smaller model's answers with its parent's, on the same test examples."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline_config.task import MetricName, TaskKind
from pipeline_store.formats import ChildComparison, MetricInterval
from trained_models.downstream import metrics
from trained_models.downstream.intervals import difference

Outputs = npt.NDArray[Any]

_NEAR = 0.1
"""Share of the parent's standard deviation within which two numbers are the same answer."""


def compare(
    kind: TaskKind,
    metric: str,
    labels: Outputs,
    *,
    child: Outputs,
    parent: Outputs,
    converted: Outputs,
    covered: float | None = None,
    covered_difference: float | None = None,
) -> ChildComparison:
    """Return how well a child reproduces its parent.

    :param metric: the metric that the task is compared by.
    :param labels: labels of the test examples.
    :param child: logits of the written file, [N, L].
    :param converted: logits of the same model before it was written.
    :raises ValueError: there are too few examples to compare on.
    """
    found = difference(kind, cast(MetricName, metric), labels, [child], [parent])
    return ChildComparison(
        difference=found.mean,
        interval=MetricInterval(low=found.low, high=found.high),
        agreement=agreement(kind, child, parent),
        conversion_agreement=agreement(kind, child, converted),
        covered=covered,
        covered_difference=covered_difference,
    )


def agreement(kind: TaskKind, found: Outputs, wanted: Outputs) -> float:
    """Return the share of examples with the same answer, in all of their labels.

    For a regression, numbers are the same if they differ by at most a tenth of the standard
    deviation of the wanted ones.
    """
    mine, theirs = metrics.predictions(kind, found), metrics.predictions(kind, wanted)
    if kind == "regression":
        same = np.abs(mine - theirs) <= _NEAR * theirs.std()
    elif kind == "multi_label":
        same = (mine == theirs).all(axis=1)
    else:
        same = mine == theirs
    return float(np.mean(same))
