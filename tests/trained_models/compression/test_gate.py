"""What a child must not lose, and what a step that silently did nothing looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline_config.compression import CompressionConfig
from pipeline_store.formats import ChildComparison, MetricInterval, ModelFigures
from trained_models.compression.comparison import agreement, compare
from trained_models.compression.gate import reasons_against

FIGURES: dict[str, Any] = {
    "parameters": 1000,
    "expected_parameters": 1000,
    "types": {"int8": 0.97, "float32": 0.03},
    "megabytes": 1.0,
    "p50_ms": 5.0,
    "p95_ms": 6.0,
    "metric": "accuracy",
    "value": 0.9,
    "loss": 0.3,
    "examples": 500,
}
PARENT = ModelFigures(**FIGURES | {"megabytes": 4.0, "types": {"float32": 1.0}})
COMPARISON: dict[str, Any] = {
    "difference": -0.002,
    "interval": MetricInterval(low=-0.01, high=0.006),
    "agreement": 0.99,
    "conversion_agreement": 0.995,
}


def against(
    name: str = "tflite_dynamic_range",
    settings: dict[str, Any] | None = None,
    figures: dict[str, Any] | None = None,
    **comparison: Any,
) -> list[str]:
    return reasons_against(
        name,
        CompressionConfig(**settings or {}),
        parent=PARENT,
        child=ModelFigures(**FIGURES | (figures or {})),
        comparison=ChildComparison(**COMPARISON | comparison),
    )


def test_what_keeps_to_all_limits_is_accepted() -> None:
    assert against() == []
    assert against(settings={"max_megabytes": 1.0, "max_latency_ms": 5.0}) == []
    assert against(covered=0.9, covered_difference=1e-6) == []


def test_the_low_end_of_the_interval_decides_and_not_the_difference() -> None:
    wide = MetricInterval(low=-0.03, high=0.03)
    (reason,) = against(difference=0.0, interval=wide)
    assert "compression.max_metric_loss is 0.02" in reason
    assert against(settings={"max_metric_loss": 0.03}, difference=0.0, interval=wide) == []


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        # The layers that were to go are all there, or more than those went.
        ({"parameters": 1500}, "The file has 1,500 weights"),
        ({"parameters": 900}, "make 1,000"),
        ({"types": {"float32": 1.0}}, "0% of its weights are int8"),
        ({"megabytes": 4.0}, "nothing was saved"),
        ({"loss": float("nan")}, "not all finite"),
    ],
)
def test_what_was_not_done_is_seen_in_the_file(figures: dict[str, Any], words: str) -> None:
    (reason,) = against(figures=figures)
    assert words in reason


def test_each_limit_is_one() -> None:
    (reason,) = against(settings={"max_megabytes": 0.9})
    assert "compression.max_megabytes is 0.9" in reason
    (reason,) = against(settings={"max_latency_ms": 4.9})
    assert "compression.max_latency_ms is 4.9" in reason
    (reason,) = against(conversion_agreement=0.96)
    assert "compression.min_agreement is 97.00%" in reason
    # Not a number is no small difference.
    for difference in (1e-3, float("nan")):
        (reason,) = against(covered=1.0, covered_difference=difference)
        assert "rows of the embeddings" in reason


def test_plain_tensorflow_lite_need_not_be_smaller() -> None:
    figures = {"types": {"float32": 1.0}, "megabytes": 4.0}
    assert against("tflite_float32", figures=figures) == []
    assert against("tflite_float16", figures=figures | {"types": {"float16": 1.0}}) != []


def test_a_child_is_compared_with_its_parent_and_with_what_was_written() -> None:
    labels = np.arange(200) % 2
    parent = np.eye(2, dtype=np.float32)[labels]
    child = parent.copy()
    child[:10] = child[:10, ::-1]
    found = compare(
        "classification", "accuracy", labels, child=child, parent=parent, converted=child
    )
    assert found.difference == pytest.approx(-0.05)
    assert found.interval.low < -0.05 < found.interval.high
    assert (found.agreement, found.conversion_agreement) == (0.95, 1.0)


def test_agreement_of_several_labels_is_that_of_all_and_of_numbers_by_their_spread() -> None:
    wanted = np.array([[1.0, -1.0], [1.0, 1.0]])
    assert agreement("multi_label", np.array([[2.0, -3.0], [1.0, -1.0]]), wanted) == 0.5
    numbers = np.array([[-1.0], [1.0]])
    assert agreement("regression", np.array([[-0.95], [1.2]]), numbers) == 0.5
