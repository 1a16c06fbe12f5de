"""How far a difference between two fine-tuned models can be trusted.

Two things could have come out differently: which examples the test split has, and which seeds the
classifiers were trained from. Both models see the same of both, so their difference is taken
example by example and seed by seed, as readers and cases are in studies of diagnostic tests
(Obuchowski and Rockette 1995; Hillis, Statistics in Medicine 2007).
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
"""What a model put out for the test examples, an array for each seed."""


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
    """By which examples there are, among them how seeds disagree about them."""
    seeds: float
    """By which seeds there are, likewise."""
    both: float
    """How seeds disagree about examples: a part of each of the two."""


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
    of them have ten resamples, and the quantiles of those would find a difference between equal
    models in a fifth of all cases. What the seeds contribute is therefore their sample variance
    with Student's quantile for so few, and the two parts are added up as half-widths of intervals
    are (Howe, JASA 1974). The interval is never narrower than that of the examples alone.

    With one seed there is nothing to say about seeds, and the interval is that of the examples.

    :param labels: of the test examples, see :func:`measure`.
    :param model: outputs by seed.
    :param reference: outputs by seed, in the same order.
    :param random_seed: of the resampling; equal seeds, equal intervals.
    :raises ValueError: there are not equally many seeds, or too few examples.
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
    """Return the same of metrics that are known already, by seed.

    :param examples: number of them.
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
    """Yield how often each example is drawn, shape [some, examples], RESAMPLES in all."""
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
    :param drawn: the same of every resample of the examples, shape [RESAMPLES, seeds].
    :param smallest: added to that of the examples. Few examples on which two classifiers disagree
        say little about how many there could be, so two more are counted, one in favor of each
        (Bonett and Price, JEBS 2012). For all seeds together: those of a frozen encoder nearly
        agree, and more of them say nothing new about the examples.
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
