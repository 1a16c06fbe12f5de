"""How sure a difference between two models is: a paired bootstrap over documents.

Efron and Tibshirani, An Introduction to the Bootstrap, 1993; for paired system comparison Koehn,
EMNLP 2004. Tokens of one document are not independent, documents nearly are.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from model_registry.best_scores import Floats

RESAMPLES = 2000
# Documents drawn at once: a few tens of megabytes, whatever the size of the set.
_DRAWS_AT_ONCE = 1 << 20


class Interval(NamedTuple):
    """How much better the candidate is, with its confidence interval."""

    mean: float
    low: float
    high: float


def interval(
    losses: Floats, reference: Floats, tokens: Floats, confidence: float, random_seed: int
) -> Interval:
    """Return by how much losses are below those of a reference; all sums by document, [N].

    :param tokens: how much each document counts.
    :param confidence: share of the resamples that the interval holds.
    """
    means = _resampled_means(reference - losses, tokens, random_seed)
    tail = _tail(confidence, len(tokens))
    low, high = np.quantile(means, [tail, 1 - tail])
    mean = (reference - losses).sum() / tokens.sum()
    return Interval(float(mean), float(low), float(high))


def _tail(confidence: float, documents: int) -> float:
    """Return the share of resamples outside each end of the interval.

    Percentile intervals of few documents are too narrow; the share is therefore taken from a
    t-interval with its unbiased variance (Hesterberg, The American Statistician 2015, "expanded
    percentile"), Student's quantile by the first two terms of its expansion in 1/freedom.
    """
    freedom = max(documents - 1, 1)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    student = z + (z**3 + z) / (4 * freedom)
    student += (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return NormalDist().cdf(-student * math.sqrt(documents / freedom))


def _resampled_means(differences: Floats, tokens: Floats, random_seed: int) -> Floats:
    """Return the mean difference per token of every resample of the documents.

    :param differences: sums by document, shape [N].
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
