"""What the lines of the check come to: criteria by task, as far as there are lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verification.compress_check.results import Criterion, Results, criteria

FIGURES: dict[str, Any] = {"megabytes": 90.0, "p50_ms": 20.0}


def line(model: str, accuracy: float, seed: int = 1, **more: Any) -> dict[str, Any]:
    return {"task": "t", "seed": seed, "model": model, "accuracy": accuracy, **FIGURES, **more}


LINES = [
    line("majority", 0.5, seed=0),
    line("tfidf", 0.6, seed=0, interval=[0.01, 0.2]),
    line("parent", 0.8),
    line("student", 0.78, p50_ms=11.0),
    line("undistilled", 0.76),
    line("tflite_float32", 0.8),
    line("tflite_dynamic_range", 0.8, megabytes=23.0, p50_ms=4.0, agreement_all=0.99),
    line("trim", 0.8, covered_difference=1e-6),
]


def test_each_criterion_is_judged_by_its_own_lines() -> None:
    found = {one.name: one for one in criteria(LINES, "t")}
    assert len(found) == 8
    failed = {name for name, one in found.items() if not one.holds}
    # 0.28 of 0.3 points above the majority, and 99 of 100 answers.
    assert failed == {"student's share of the parent's gain", "dynamic range: agreement"}
    assert found["student's share of the parent's gain"].value == pytest.approx(0.28 / 0.3)
    assert found["dynamic range: latency"].value == pytest.approx(0.2)
    assert found["student minus undistilled"].value == pytest.approx(0.02)


def test_ratios_are_taken_within_a_seed_and_what_was_not_measured_is_not_judged() -> None:
    other = [line("tflite_float32", 0.8, seed=2), line("student", 0.7, seed=3)]
    found = {one.name: one.value for one in criteria(LINES + other, "t")}
    assert found["dynamic range: size"] == pytest.approx(23 / 90)
    assert found["student's latency"] == pytest.approx(0.55)
    assert list(criteria(LINES, "other")) == []
    assert [one.name for one in criteria(LINES[2:4], "t")] == ["student's latency"]


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    results = Results(tmp_path / "folder" / "results.jsonl")
    assert results.lines() == []
    results.add(LINES[0])
    assert Results(results.path).lines() == LINES[:1]
    assert results.has("t", 0, "majority")
    assert not results.has("t", 1, "majority")


def test_a_criterion_says_its_limit() -> None:
    assert Criterion("t", "size", 0.2, 0.26, True).as_dict() == {
        "task": "t",
        "criterion": "size",
        "value": 0.2,
        "limit": "<= 0.26",
        "holds": True,
    }
    assert not Criterion("t", "share", float("nan"), 0.97, False).holds
