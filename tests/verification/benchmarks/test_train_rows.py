from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from verification.benchmarks.train import rows
from verification.benchmarks.train.contest import Measured, SideName, Sizes
from verification.benchmarks.train.rows import GROUPS, Bench, Row, training_rows

HEAD = ["name", "value", "unit", "peer", "ratio", "utilization"]
OURS = SideName("ours")
EAGER = SideName("hugging_face")
COMPILED = replace(EAGER, compiled=True)


def measured(*seconds: float, parameters: int | None = 7) -> Measured:
    about: dict[str, object] = {"versions": {"library": "1"}}
    if parameters is not None:
        about["parameters"] = parameters
    found = Measured(about, 9.0)
    for value in seconds:
        found.add({"wall_s": value, "cpu_s": 2 * value, "loss": 3.0, "flops": 4e12 * value}, 1)
    return found


class Finished(Bench):
    """A bench whose contests are over."""

    def contest(self, *names: SideName) -> dict[SideName, Measured]:
        return {name: FOUND.get(name, measured(1.0, 1.0, parameters=None)) for name in names}


FOUND: dict[SideName, Measured] = {}


@pytest.fixture
def bench() -> Bench:
    FOUND.clear()
    return Finished(Path("unused"), 2, Sizes())


def test_the_fastest_peer_counts_and_ratios_are_taken_within_rounds(bench: Bench) -> None:
    FOUND[OURS] = measured(1.0, 2.0, 4.0)
    FOUND[COMPILED] = measured(2.0, 2.0, 4.0)
    FOUND[EAGER] = measured(3.0, 3.0, 3.0)
    (row,) = training_rows(bench, ours={"a": OURS}, peers=(EAGER, COMPILED))
    shown = row.to_json()
    assert list(shown)[:6] == HEAD
    assert shown["peer"] == "hugging face, mini, float32, compiled"
    assert (shown["value"], shown["peer_value"]) == (16.0, 16.0)
    # 2, 1 and 1 times as fast.
    assert (shown["ratio"], shown["ratio_low"], shown["ratio_high"]) == (1.0, 1.0, 2.0)
    assert shown["peers_ms_per_step"] == {str(EAGER): 3000.0, str(COMPILED): 2000.0}
    # 114 GFLOP in 2 s, of 4 TFLOP/s.
    assert shown["utilization"] == pytest.approx(114e9 / 2 / 4e12, rel=0.01)
    json.dumps(shown)


def test_sides_of_different_size_are_not_compared(bench: Bench) -> None:
    FOUND[OURS], FOUND[EAGER] = measured(1.0, parameters=7), measured(1.0, parameters=8)
    with pytest.raises(ValueError, match="different numbers of weights"):
        list(training_rows(bench, ours={"a": OURS}, peers=(EAGER,)))


def test_bfloat16_rows_say_what_the_processor_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = replace(OURS, dtype="bfloat16")
    FOUND[mine] = FOUND[EAGER] = measured(1.0)
    monkeypatch.setattr(rows.machine, "bfloat16_units", lambda: None)
    (row,) = training_rows(bench, ours={"a": mine}, peers=(EAGER,))
    assert "no instructions" in row.to_json()["bfloat16_units"]
    monkeypatch.setattr(rows.machine, "bfloat16_units", lambda: "amx_bf16")
    (row,) = training_rows(bench, ours={"a": mine}, peers=(EAGER,))
    assert row.to_json()["bfloat16_units"] == "amx_bf16"


def test_missing_numbers_are_null() -> None:
    shown = Row("a", 1.23456, "GFLOP/s").to_json()
    assert shown == dict.fromkeys(HEAD) | {"name": "a", "value": 1.2346, "unit": "GFLOP/s"}


def test_the_rows_that_are_asked_for_exist() -> None:
    assert {
        "ours_fp32_vs_hf_gathered",
        "ours_bf16_vs_hf_bf16",
        "ours_fp32_vs_tf_models",
        "input_pipeline_vs_training",
    } <= set(GROUPS)
