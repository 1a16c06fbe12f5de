"""The metrics that can be resampled are those of the trainer, also on what was drawn twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_config.task import METRICS, MetricName, TaskKind
from trained_models.downstream import metrics
from trained_models.downstream.measures import measure

KINDS: tuple[TaskKind, ...] = ("classification", "multi_label", "regression")
Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def drawn(kind: TaskKind, examples: int, labels: int, seed: int) -> Arrays:
    """Return labels and outputs that have something to do with each other."""
    random = np.random.default_rng(seed)
    if kind == "regression":
        # Rounded, so that there are ties.
        wanted = random.normal(size=examples).round(1)
        return wanted, (wanted + random.normal(size=examples)).round(1)[:, np.newaxis]
    noise = random.normal(size=(examples, labels))
    if kind == "multi_label":
        several = random.integers(0, 2, (examples, labels))
        return several, several - 0.5 + noise
    one = random.integers(0, labels, examples)
    return one, np.eye(labels)[one] + noise


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(examples=st.integers(2, 40), labels=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_a_resample_has_the_metrics_of_its_examples(
    kind: TaskKind, examples: int, labels: int, seed: int
) -> None:
    wanted, outputs = drawn(kind, examples, labels, seed)
    rows = np.random.default_rng(seed).integers(0, examples, examples)
    weights = np.bincount(rows, minlength=examples).astype(float)
    both = np.stack([np.ones(examples), weights])
    plain = metrics.scores(kind, wanted, outputs)
    resampled = metrics.scores(kind, wanted[rows], outputs[rows])
    for name in METRICS[kind]:
        found = measure(kind, name, wanted, outputs)(both)
        assert found == pytest.approx([plain[name], resampled[name]], abs=1e-9), name


@pytest.mark.parametrize("kind", KINDS)
def test_constant_predictions_have_a_finite_metric(kind: TaskKind) -> None:
    wanted, outputs = drawn(kind, 20, 3, seed=1)
    constant = np.full_like(outputs, 0.1)
    for name in METRICS[kind]:
        [found] = measure(kind, name, wanted, constant)(np.ones((1, 20)))
        assert found == pytest.approx(metrics.scores(kind, wanted, constant)[name])


@pytest.mark.parametrize(("scale", "name"), [(1e-9, "pearson"), (1e9, "spearman")])
def test_the_unit_of_a_number_does_not_matter(scale: float, name: MetricName) -> None:
    wanted, outputs = drawn("regression", 30, 1, seed=2)
    one = np.ones((1, 30))
    expected = measure("regression", name, wanted, outputs)(one)
    scaled = measure("regression", name, scale * wanted + scale, scale * outputs)(one)
    assert scaled == pytest.approx(expected, abs=1e-6)
