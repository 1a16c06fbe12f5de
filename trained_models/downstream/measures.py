"""The metrics of classifiers under any weighting of the examples, for resampling them.

A resample of the examples is a weight for each: how often it was drawn. Every metric but Spearman's
is a function of weighted sums over examples, so that a thousand resamples are one product of
matrices. With weights of 1 each is what :mod:`trained_models.downstream.metrics` computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pipeline_config.task import MetricName, TaskKind

Floats = npt.NDArray[np.float64]
Measure = Callable[[Floats], Floats]
"""Function from weights, shape [B, N], to the metric, shape [B]."""


def measure(
    task_kind: TaskKind, metric: MetricName, labels: npt.NDArray[Any], outputs: npt.NDArray[Any]
) -> Measure:
    """Return a metric of a model's outputs as a function of the examples' weights.

    :param labels: shape [N]; for several labels 0 or 1, shape [N, L].
    :param outputs: logits, shape [N, L]; for a regression values, shape [N, 1].
    """
    if task_kind == "regression":
        wanted, predicted = labels.reshape(-1).astype(float), outputs.reshape(-1).astype(float)
        return _pearson(wanted, predicted) if metric == "pearson" else _spearman(wanted, predicted)
    right, chosen = _decisions(task_kind, labels, outputs)
    hits = right.multiply(chosen).tocsr()
    named = right + chosen
    if metric == "accuracy":
        return _mean(np.asarray(named.sum(axis=1) == 2 * hits.sum(axis=1)))
    if metric == "matthews":
        return _matthews(hits, right, chosen)
    if metric == "micro_f1":
        return _f1(_total(hits), _total(named))
    return _f1(hits, named, all_labels=task_kind == "multi_label")


def _decisions(
    task_kind: TaskKind, labels: npt.NDArray[Any], outputs: npt.NDArray[Any]
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return the right labels and the predicted ones, 0 or 1, both of shape [N, L]."""
    if task_kind == "multi_label":
        # A logit above 0 is a probability above one half.
        return sparse.csr_array(labels, dtype=float), sparse.csr_array(outputs > 0, dtype=float)
    count = outputs.shape[1]
    return _members(labels.astype(np.int64), count), _members(outputs.argmax(axis=1), count)


def _members(groups: npt.NDArray[np.int64], count: int) -> sparse.csr_array:
    """Return which of ``count`` groups each example is in, shape [N, count]."""
    examples = np.arange(len(groups))
    return sparse.csr_array((np.ones(len(groups)), (examples, groups)), (len(groups), count))


def _total(columns: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array(columns.sum(axis=1)[:, np.newaxis])


def _mean(values: npt.NDArray[np.bool_]) -> Measure:
    column = values.astype(float)
    return lambda weights: weights @ column / weights.sum(axis=1)


def _f1(hits: sparse.csr_array, named: sparse.csr_array, *, all_labels: bool = True) -> Measure:
    """Return the mean over labels of 2 hits / (right + predicted).

    :param all_labels: count a label that is neither right nor predicted anywhere, as 0.
    """

    def value(weights: Floats) -> Floats:
        counts = weights @ named
        total = _ratio(2 * (weights @ hits), counts).sum(axis=1)
        return total / (counts.shape[1] if all_labels else np.count_nonzero(counts, axis=1))

    return value


def _matthews(hits: sparse.csr_array, right: sparse.csr_array, chosen: sparse.csr_array) -> Measure:
    """Return the correlation of several classes (Gorodkin 2004); 0 where one side is constant."""

    def value(weights: Floats) -> Floats:
        total, hit = weights.sum(axis=1), (weights @ hits).sum(axis=1)
        wanted, predicted = weights @ right, weights @ chosen
        covariance = hit * total - (wanted * predicted).sum(axis=1)
        variances = [total**2 - (counts**2).sum(axis=1) for counts in (wanted, predicted)]
        return _ratio(covariance, np.sqrt(variances[0] * variances[1]))

    return value


def _pearson(wanted: Floats, predicted: Floats) -> Measure:
    # Standardized, each variable is of the size 1, and sums of squares lose no digits.
    wanted, predicted = _standardised(wanted), _standardised(predicted)
    return lambda weights: _correlation(
        weights, np.broadcast_to(wanted, weights.shape), np.broadcast_to(predicted, weights.shape)
    )


def _standardised(values: Floats) -> Floats:
    if np.ptp(values) == 0:
        return np.zeros_like(values)
    return (values - values.mean()) / values.std()


def _spearman(wanted: Floats, predicted: Floats) -> Measure:
    ranks = [_ranks(values) for values in (wanted, predicted)]
    return lambda weights: _correlation(weights, ranks[0](weights), ranks[1](weights))


def _ranks(values: Floats) -> Measure:
    """Return the function to the examples' mean ranks in a resample, shape [B, N]."""
    found, group = np.unique(values, return_inverse=True)
    member = _members(group, len(found))

    def of(weights: Floats) -> Floats:
        sizes = weights @ member
        return (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]

    return of


def _correlation(weights: Floats, one: Floats, other: Floats) -> Floats:
    """Return the weighted correlation of two variables, each of shape [B, N]; 0 of a constant."""
    total = weights.sum(axis=1, keepdims=True)
    one = one - (weights * one).sum(axis=1, keepdims=True) / total
    other = other - (weights * other).sum(axis=1, keepdims=True) / total
    covariance = (weights * one * other).sum(axis=1)
    variances = [(weights * values**2).sum(axis=1) for values in (one, other)]
    return _ratio(covariance, np.sqrt(variances[0] * variances[1]))


def _ratio(above: Floats, below: Floats) -> Floats:
    """Return the quotients, 0 where the divisor is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 1e-12)
