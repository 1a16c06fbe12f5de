"""Confidence intervals of the difference between two fine-tuned models.

Two things are random: the examples of the test split, and the seeds that the classifiers were
trained from. Both models have the same examples and seeds, so their difference is taken example by
example and seed by seed, as with readers and cases in studies of diagnostic tests (Obuchowski and
Rockette 1995; Hillis, Statistics in Medicine 2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from pipeline_config.task import MIN_COMPARED_EXAMPLES, MetricName, TaskKind
from trained_models.downstream.measures import Floats, Measure, measure

RESAMPLES = 1000
# Weights drawn at once: some tens of megabytes, whatever the size of the split.
_DRAWS_AT_ONCE = 1 << 20

Outputs = Sequence[npt.NDArray[Any]]
"""A model's outputs for the test examples, an array for each seed."""


class Difference(NamedTuple):
    """A metric of two models: means over seeds, and their difference with its interval."""

    model_mean: float
    reference_mean: float
    mean: float
    low: float
    high: float


class _Variances(NamedTuple):
    """Variances of the mean difference."""

    examples: float
    """From the choice of examples, including the disagreement of seeds about them."""
    seeds: float
    """From the choice of seeds, including the same disagreement."""
    both: float
    """From the disagreement of seeds about examples: a part of each of the two."""


def difference(
    task_kind: TaskKind,
    metric: MetricName,
    labels: npt.NDArray[Any],
    model: Outputs,
    reference: Outputs,
    *,
    confidence: float = 0.95,
    random_seed: int = 1,
) -> Difference:
    """Return how much better a model's metric is than a reference's, with an interval.

    The examples are resampled (paired bootstrap, Efron and Tibshirani 1993). Seeds are not: three
    of them have only ten resamples, whose quantiles would find a difference between equal models
    in a fifth of all cases. The seeds contribute their sample variance with Student's quantile for
    so few instead, and the two parts are added like half-widths of intervals (Howe, JASA 1974).
    The interval is never narrower than that of the examples alone.

    With one seed nothing is known about seeds, and the interval is that of the examples.

    :param labels: labels of the test examples, see :func:`measure`.
    :param model: outputs by seed.
    :param reference: outputs by seed, in the same order.
    :param random_seed: seed of the resampling; equal seeds give equal intervals.
    :raises ValueError: the numbers of seeds differ, or there are too few examples.
    """
    _require_pairs(len(model), len(reference), len(labels))
    mine, others = (
        [measure(task_kind, metric, labels, outputs) for outputs in side]
        for side in (model, reference)
    )
    return difference_of(
        mine,
        others,
        len(labels),
        is_of_decisions=task_kind != "regression",
        confidence=confidence,
        random_seed=random_seed,
    )


def difference_of(
    model: Sequence[Measure],
    reference: Sequence[Measure],
    examples: int,
    *,
    is_of_decisions: bool,
    confidence: float = 0.95,
    random_seed: int = 1,
) -> Difference:
    """Return the difference as :func:`difference` does, from metrics by seed.

    :param examples: number of examples.
    :param is_of_decisions: whether each example is right or wrong.
    :raises ValueError: as :func:`difference`.
    """
    _require_pairs(len(model), len(reference), examples)
    sides = (model, reference)
    # Shape [2, seeds].
    values = np.array([[one(np.ones((1, examples)))[0] for one in side] for side in sides])
    drawn = [
        np.stack([one(weights) - other(weights) for one, other in zip(*sides, strict=True)], 1)
        for weights in resamples(examples, random_seed)
    ]
    smallest = 2 / examples**2 if is_of_decisions else 0.0
    variances = _variances(values[0] - values[1], np.concatenate(drawn), examples, smallest)
    half = _half_width(variances, confidence, examples, len(model))
    model_mean, reference_mean = (float(side.mean()) for side in values)
    mean = model_mean - reference_mean
    return Difference(model_mean, reference_mean, mean, mean - half, mean + half)


def _require_pairs(seeds: int, others: int, examples: int) -> None:
    if seeds != others or not seeds or examples < MIN_COMPARED_EXAMPLES:
        raise ValueError(
            f"{seeds} seeds of a model and {others} of its reference on {examples} examples cannot "
            "be compared; both need the same seeds, and there must be "
            f"{MIN_COMPARED_EXAMPLES} examples."
        )


def resamples(examples: int, random_seed: int) -> Iterator[Floats]:
    """Yield how often each example is drawn, shape [part, examples]; RESAMPLES rows in all."""
    random = np.random.default_rng(random_seed)
    at_once = max(1, _DRAWS_AT_ONCE // examples)
    for start in range(0, RESAMPLES, at_once):
        size = min(at_once, RESAMPLES - start)
        drawn = random.integers(0, examples, (size, examples))
        places = drawn + examples * np.arange(size)[:, np.newaxis]
        counts = np.bincount(places.ravel(), minlength=size * examples)
        yield counts.reshape(size, examples).astype(float)


def _variances(by_seed: Floats, drawn: Floats, examples: int, smallest: float) -> _Variances:
    """Return the parts of the variance of the mean difference.

    :param by_seed: differences, shape [seeds].
    :param drawn: the same for every resample of the examples, shape [RESAMPLES, seeds].
    :param smallest: added to the variance of the examples. If two classifiers disagree on few
        examples, those say little about how many there could be, so two more are counted, one in
        favor of each (Bonett and Price, JEBS 2012). They are counted once for all seeds: those of
        a frozen encoder nearly agree, and more of them say nothing new about the examples.
    """
    seeds = len(by_seed)
    # A resample of n examples varies by (n - 1) / n of what n examples do.
    correction = examples / (examples - 1)
    of_examples = correction * drawn.mean(axis=1).var(ddof=1) + smallest
    if seeds == 1:
        return _Variances(float(of_examples), 0.0, 0.0)
    around = drawn - drawn.mean(axis=0)
    of_both = correction * around.var(axis=1, ddof=1).mean() / seeds
    return _Variances(float(of_examples), float(by_seed.var(ddof=1) / seeds), float(of_both))


def _half_width(variances: _Variances, confidence: float, examples: int, seeds: int) -> float:
    def squared_quantile(number: int) -> float:
        return float(stats.t.ppf((1 + confidence) / 2, number - 1)) ** 2

    of_examples = squared_quantile(examples)
    alone = of_examples * variances.examples
    if seeds == 1:
        return float(np.sqrt(alone))
    rest = of_examples * max(variances.examples - variances.both, 0.0)
    return float(np.sqrt(max(alone, rest + squared_quantile(seeds) * variances.seeds)))
