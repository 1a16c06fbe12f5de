from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from verification.benchmarks.train import contest, rows
from verification.benchmarks.train.contest import Measured, SideFailedError, SideName, Sizes
from verification.benchmarks.train.rows import GROUPS, Bench, training_rows

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
    assert row.peer == "hugging face, mini, float32, compiled"
    assert (row.value, row.details["peer_value"]) == (16.0, 16.0)
    # 2, 1 and 1 times as fast; ours took 1 to 4 s, and the best of both are 1 and 2 s.
    assert (row.ratio, row.spread, row.best_ratio) == (1.0, 4.0, 2.0)
    assert row.details["peers_ms_per_step"] == {str(EAGER): 3000.0, str(COMPILED): 2000.0}
    # At its defaults, and at its best.
    assert row.details["ratio_by_peer"] == {str(EAGER): 1.5, str(COMPILED): 1.0}
    # 114 GFLOP in 2 s, of 4 TFLOP/s.
    assert row.utilization == pytest.approx(114e9 / 2 / 4e12, rel=0.01)
    json.dumps(row.details)


def test_a_tuned_peer_takes_part_where_the_machine_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "tcmalloc", lambda: None)
    assert rows.tuned(COMPILED) == ()
    monkeypatch.setattr(rows, "tcmalloc", lambda: "libtcmalloc_minimal.so.4")
    (tuned,) = rows.tuned(COMPILED)
    assert str(tuned) == f"{COMPILED}, tcmalloc"
    monkeypatch.setattr(contest, "tcmalloc", lambda: "libtcmalloc_minimal.so.4")
    assert tuned.environment() == {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}
    assert COMPILED.environment() == {}
    monkeypatch.setattr(contest, "tcmalloc", lambda: None)
    with pytest.raises(SideFailedError, match="libtcmalloc-minimal4"):
        tuned.environment()


def test_sides_of_different_size_are_not_compared(bench: Bench) -> None:
    FOUND[OURS], FOUND[EAGER] = measured(1.0, parameters=7), measured(1.0, parameters=8)
    with pytest.raises(ValueError, match="different numbers of weights"):
        list(training_rows(bench, ours={"a": OURS}, peers=(EAGER,)))


def test_bfloat16_rows_say_what_the_processor_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = replace(OURS, dtype="bfloat16")
    FOUND[mine] = FOUND[EAGER] = measured(1.0)
    monkeypatch.setattr(rows.results, "bfloat16_units", lambda: None)
    (row,) = training_rows(bench, ours={"a": mine}, peers=(EAGER,))
    assert "no instructions" in row.details["bfloat16_units"]
    monkeypatch.setattr(rows.results, "bfloat16_units", lambda: "amx_bf16")
    (row,) = training_rows(bench, ours={"a": mine}, peers=(EAGER,))
    assert row.details["bfloat16_units"] == "amx_bf16"


def test_the_rows_that_are_asked_for_exist() -> None:
    assert {
        "ours_fp32_vs_hf_gathered",
        "ours_bf16_vs_hf_bf16",
        "ours_fp32_vs_tf_models",
        "input_pipeline_vs_training",
    } <= set(GROUPS)
