"""Metrics of texts that a model has written, each with a 95 % interval.

Exact match: equal after runs of white space are one space. ROUGE-L (Lin 2004): the F1 of the
longest common subsequence of words, which are letters, digits and ``_`` in lower case; mean over
examples. BLEU (Papineni 2002) as sacrebleu's default, of the whole split, from 0 to 100. For
labels: accuracy, macro-F1 over the labels that occur or are written, and the share of texts that
are none of the labels, which are wrong.

Intervals cover the choice of examples: quantiles of the metric over resamples of the examples, as
:mod:`trained_models.downstream.intervals` draws them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_config.text_to_text import TEXT_METRICS, TargetKind, TextMetric
from trained_models.downstream.intervals import resamples

Floats = npt.NDArray[np.float64]
Measure = Callable[[Floats], Floats]
"""Function from how often each example counts, [K, N], to the K values of a metric, [K]."""

_WORD = re.compile(r"\w+")
_CONFIDENCE = 0.95
_ORDER = 4


class Measured(NamedTuple):
    """A metric and its interval."""

    value: float
    low: float
    high: float


def scores(
    kind: TargetKind,
    outputs: Sequence[str],
    targets: Sequence[str],
    labels: Sequence[str] = (),
    *,
    random_seed: int = 1,
) -> dict[TextMetric, Measured]:
    """Return all metrics of a kind of target.

    :param labels: all labels, if targets are labels.
    :param random_seed: seed of the resamples; equal seeds give equal intervals.
    :raises ValueError: there is no example, or not one output for each.
    """
    if not targets or len(outputs) != len(targets):
        raise ValueError(f"{len(outputs)} outputs of {len(targets)} examples")
    mine, wanted = (list(map(plain, texts)) for texts in (outputs, targets))
    if kind == "label":
        measures = _label_measures(mine, wanted, [plain(label) for label in labels])
    else:
        measures = _text_measures(mine, wanted)
    draws = list(resamples(len(targets), random_seed))
    return {name: _measured(measures[name], len(targets), draws) for name in TEXT_METRICS[kind]}


def plain(text: str) -> str:
    """Return a text as it is compared: runs of white space are one space, none at the ends."""
    return " ".join(text.split())


def _measured(measure: Measure, examples: int, draws: Sequence[Floats]) -> Measured:
    value = float(measure(np.ones((1, examples)))[0])
    drawn = np.concatenate([measure(weights) for weights in draws])
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Measured(value, float(low), float(high))


def _mean_of(values: Sequence[float]) -> Measure:
    each = np.array(values, float)
    return lambda weights: weights @ each / weights.sum(axis=1)


def _text_measures(outputs: Sequence[str], targets: Sequence[str]) -> dict[str, Measure]:
    pairs = list(zip(outputs, targets, strict=True))
    return {
        "exact_match": _mean_of([output == target for output, target in pairs]),
        "rouge_l": _mean_of([rouge_l(output, target) for output, target in pairs]),
        "bleu": _bleu(pairs),
    }


def rouge_l(output: str, target: str) -> float:
    """Return the F1 of the longest common subsequence of words; 1 if neither has a word."""
    mine, wanted = (_WORD.findall(text.lower()) for text in (output, target))
    if not mine and not wanted:
        return 1.0
    common = _common(mine, wanted)
    return 2.0 * common / (len(mine) + len(wanted))


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    lengths = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for place, other in enumerate(second, 1):
            above = lengths[place]
            lengths[place] = diagonal + 1 if word == other else max(above, lengths[place - 1])
            diagonal = above
    return lengths[-1]


def _bleu(pairs: Sequence[tuple[str, str]]) -> Measure:
    # Takes half a second to import, and tasks with labels do not need it.
    from sacrebleu.metrics import BLEU

    # Only counts are taken by sentence; without an effective order the library would warn.
    sentence, corpus = BLEU(effective_order=True), BLEU()
    found = [sentence.sentence_score(output, [target]) for output, target in pairs]
    counts = np.array([[*f.counts, *f.totals, f.sys_len, f.ref_len] for f in found], float)

    def measure(weights: Floats) -> Floats:
        return np.array([_bleu_of(corpus, row) for row in np.rint(weights @ counts).astype(int)])

    return measure


def _bleu_of(metric: Any, sums: npt.NDArray[np.int64]) -> float:
    values = sums.tolist()
    found = metric.compute_bleu(
        correct=values[:_ORDER],
        total=values[_ORDER : 2 * _ORDER],
        sys_len=values[-2],
        ref_len=values[-1],
    )
    return float(found.score)


def _label_measures(
    outputs: Sequence[str], targets: Sequence[str], labels: Sequence[str]
) -> dict[str, Measure]:
    numbers = {label: number for number, label in enumerate(labels)}
    wanted = np.array([numbers[target] for target in targets])
    found = np.array([numbers.get(output, -1) for output in outputs])
    present = np.union1d(wanted, found[found >= 0])
    # [N, labels]: with these, F1 is a ratio of sums over examples.
    is_wanted, is_found = wanted[:, None] == present, found[:, None] == present

    def macro_f1(weights: Floats) -> Floats:
        right = weights @ (is_wanted & is_found)
        sizes = weights @ is_wanted + weights @ is_found
        f1 = 2 * right / np.maximum(sizes, 1.0)
        # A resample may lack a label, which says nothing about the model.
        return np.asarray(f1.sum(axis=1) / np.maximum((sizes > 0).sum(axis=1), 1))

    return {
        "accuracy": _mean_of((wanted == found).tolist()),
        "macro_f1": macro_f1,
        "invalid_share": _mean_of((found < 0).tolist()),
    }
