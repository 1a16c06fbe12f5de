"""Turns classifier outputs into decisions and metrics, by label and as a confusion matrix. Light.

Outputs are logits. For a classification there is one for each label, and the largest wins; for
several labels one each, and positive means yes (a probability above 0.5). For a regression the
output is the number itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    matthews_corrcoef,
    precision_recall_fscore_support,
)

from pipeline_config.task import METRICS, TaskKind

Array = npt.NDArray[Any]


def scores(kind: TaskKind, labels: Array, outputs: Array) -> dict[str, float]:
    """Return the metrics of a kind of task, in the order of :data:`pipeline_config.task.METRICS`.

    F1 of a label that neither occurs nor is predicted is 0, and a correlation with predictions that
    are all the same is 0. F1 of a classification is over the labels that occur or are predicted.

    :param labels: the right labels: int [N]; for several labels 0 or 1, [N, L]; for a regression
        float [N].
    :param outputs: [N, L]; for a regression [N, 1].
    :raises ValueError: there is no example, or the shapes do not match.
    """
    found = predictions(kind, outputs)
    if not len(labels) or labels.shape != found.shape:
        raise ValueError(f"labels {labels.shape} and predictions {found.shape} of a {kind} task")
    return {name: float(_METRICS[name](labels, found)) for name in METRICS[kind]}


def predictions(kind: TaskKind, outputs: Array) -> Array:
    """Return the decisions of outputs: label ids [N], 0 or 1 by label [N, L], or numbers [N]."""
    if kind == "classification":
        return np.argmax(outputs, axis=1)
    return (outputs > 0).astype(np.int64) if kind == "multi_label" else outputs[:, 0]


def probabilities(kind: TaskKind, outputs: Array) -> Array:
    """Return the probability of every label, float64 [N, L]; for a regression the numbers, [N, 1].

    Those of a classification add up to 1.
    """
    exact = outputs.astype(np.float64)
    if kind == "classification":
        shares = np.exp(exact - exact.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))
    if kind == "multi_label":
        # By the tangent: no overflow for logits far from 0.
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * exact)))
    return exact


def example_losses(kind: TaskKind, labels: Array, outputs: Array) -> npt.NDArray[np.float64]:
    """Return the loss of every example without class weights, [N].

    In nats, for several labels the mean over them; for a regression the squared error.
    """
    exact = outputs.astype(np.float64)
    if kind == "classification":
        highest = exact.max(axis=1)
        log_sum = highest + np.log(np.exp(exact - highest[:, None]).sum(axis=1))
        return np.asarray(log_sum - exact[np.arange(len(exact)), labels])
    if kind == "multi_label":
        return np.asarray((np.logaddexp(0.0, exact) - exact * labels).mean(axis=1))
    return np.asarray((exact[:, 0] - labels) ** 2)


def per_label(
    kind: TaskKind, labels: Array, outputs: Array, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and number of examples of every label; {} for a regression.

    A quotient of 0 and 0 is 0.

    :param names: names of the labels, in order of their ids.
    """
    if kind == "regression":
        return {}
    columns = precision_recall_fscore_support(
        labels, predictions(kind, outputs), labels=range(len(names)), zero_division=0.0
    )
    return {
        name: dict(zip(("precision", "recall", "f1", "examples"), map(float, row), strict=True))
        for name, row in zip(names, zip(*columns, strict=True), strict=True)
    }


def confusion(labels: Array, outputs: Array) -> list[list[int]]:
    """Return how often each label of a classification (rows) is predicted as each (columns)."""
    found = predictions("classification", outputs)
    table: list[list[int]] = confusion_matrix(
        labels, found, labels=range(outputs.shape[1])
    ).tolist()
    return table


def _pearson(labels: Array, found: Array) -> float:
    """Return the correlation; 0 if either is constant, or there is one example."""
    x, y = (values - np.mean(values, dtype=np.float64) for values in (labels, found))
    scale = np.sqrt((x @ x) * (y @ y))
    # The mean of equal numbers has a rounding error, and a quotient of those is no correlation.
    constant = np.ptp(labels) == 0 or np.ptp(found) == 0
    return 0.0 if constant or scale == 0 else float(np.clip(x @ y / scale, -1.0, 1.0))


def _matthews(labels: Array, found: Array) -> float:
    """Return Matthews' coefficient; 0 if either is constant."""
    constant = np.ptp(labels) == 0 or np.ptp(found) == 0
    return 0.0 if constant else float(matthews_corrcoef(labels, found))


def _f1(average: str) -> Any:
    return lambda labels, found: f1_score(labels, found, average=average, zero_division=0.0)


_METRICS: dict[str, Any] = {
    "accuracy": accuracy_score,
    "macro_f1": _f1("macro"),
    "micro_f1": _f1("micro"),
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": lambda labels, found: _pearson(rankdata(labels), rankdata(found)),
}
