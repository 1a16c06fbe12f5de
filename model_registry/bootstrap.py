"""Confidence of a difference between two models: a paired bootstrap over the held-out documents.

Efron and Tibshirani, An Introduction to the Bootstrap, 1993; for paired system comparison Koehn,
EMNLP 2004. Tokens of one document are not independent. Documents nearly are, unless they were held
out together: then their file or group, the unit of the split, is drawn instead.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_registry.best_scores import Floats
from pipeline_store.formats import DocumentSetScore

Units = npt.NDArray[np.int64] | None
"""The number of each document's unit of the split, [N]; None: each document is one."""

RESAMPLES = 2000
# Documents drawn at once: a few tens of megabytes, whatever the size of the set.
_DRAWS_AT_ONCE = 1 << 20
FEWEST_DRAWN = 10
"""With fewer units a percentile interval is too narrow: with five, equal models differ in up to 6 %
of cases instead of the intended 2.5 % (simulated, with units of equal and of uneven sizes)."""


class Interval(NamedTuple):
    """How much better the candidate is, with its confidence interval."""

    mean: float
    low: float
    high: float


def interval(
    losses: Floats,
    reference: Floats,
    tokens: Floats,
    confidence: float,
    random_seed: int,
    *,
    units: Units = None,
) -> Interval:
    """Return by how much losses are below those of a reference; all are sums by document, [N].

    :param tokens: weight of each document.
    :param confidence: share of the resamples that the interval holds.
    :param units: at least two different ones; fewer than FEWEST_DRAWN get Student's interval.
    """
    differences = reference - losses
    mean = float(differences.sum() / tokens.sum())
    if units is not None:
        _, numbers = np.unique(units, return_inverse=True)
        differences, tokens = (
            np.bincount(numbers, sums).astype(np.float64) for sums in (differences, tokens)
        )
        if len(tokens) < FEWEST_DRAWN:
            margin = _students_margin(differences - mean * tokens, tokens.sum(), confidence)
            return Interval(mean, mean - margin, mean + margin)
    means = _resampled_means(differences, tokens, random_seed)
    tail = _tail(confidence, len(tokens))
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))


def units_of(scores: DocumentSetScore, places: npt.NDArray[np.intp], fewest: int) -> Units:
    """Return the units of some documents, or None if they are unknown or fewer than ``fewest``.

    :param places: indices of the documents in the scores, [N].
    """
    if scores.units is None:
        return None
    units = np.array(scores.units, np.int64)[places]
    return units if len(np.unique(units)) >= fewest else None


def _students_margin(residuals: Floats, total: float, confidence: float) -> float:
    """Return half of the width of the t-interval of a ratio of sums.

    :param residuals: each unit's difference minus the ratio times its tokens, shape [U].
    :param total: all tokens.
    """
    # Imported here, since few sets need it and the import is slow.
    from scipy.special import stdtrit

    count = len(residuals)
    error = math.sqrt(count / (count - 1) * float((residuals**2).sum())) / total
    return float(stdtrit(count - 1, (1 + confidence) / 2)) * error


def _tail(confidence: float, units: int) -> float:
    """Return the share of resamples outside each end of the interval.

    Percentile intervals of few units are too narrow; the share is therefore taken from a
    t-interval with its unbiased variance (Hesterberg, The American Statistician 2015, "expanded
    percentile"), Student's quantile by the first two terms of its expansion in 1/freedom.
    """
    freedom = max(units - 1, 1)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    student = z + (z**3 + z) / (4 * freedom)
    student += (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return NormalDist().cdf(-student * math.sqrt(units / freedom))


def _resampled_means(differences: Floats, tokens: Floats, random_seed: int) -> Floats:
    """Return the mean difference per token of every resample of the units.

    :param differences: sums by unit, shape [N].
    :param tokens: the weights, shape [N].
    :returns: shape [RESAMPLES].
    """
    random = np.random.default_rng(random_seed)
    count = len(tokens)
    at_once = max(1, _DRAWS_AT_ONCE // count)
    means = []
    for start in range(0, RESAMPLES, at_once):
        size = (min(at_once, RESAMPLES - start), count)
        drawn = random.integers(0, count, size, dtype=np.int32)
        means.append(differences[drawn].sum(axis=1) / tokens[drawn].sum(axis=1))
    return np.concatenate(means)
