from __future__ import annotations

import json

import pytest

from verification.benchmarks.triggers.__main__ import lags, main


def test_lateness_is_what_a_gap_has_beyond_the_poll_interval() -> None:
    looks = [
        {"name": "a", "received": 0.0},
        {"name": "b", "received": 1.0},
        {"name": "a", "received": 10.5},
        {"name": "b", "received": 13.0},
        {"name": "a", "received": 20.5},
    ]
    found = lags(looks, interval=10.0, seconds=25.0)
    assert (found["triggers_seen"], found["looks"], found["looks_per_second"]) == (2, 5, 0.2)
    assert (found["late_median_seconds"], found["late_max_seconds"]) == (0.5, 2.0)


def test_without_looks_there_is_no_lateness() -> None:
    assert lags([], interval=10.0, seconds=25.0)["late_median_seconds"] is None


@pytest.mark.thorough
def test_a_bare_loop_with_a_few_triggers(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--plain", "--triggers", "3", "--seconds", "4", "--poll-interval", "0.5"]
    assert main(few) == 0
    settings, measured = map(json.loads, capsys.readouterr().out.splitlines()[-2:])
    assert settings["triggers"] == 3
    assert (measured["triggers_seen"], measured["ended_early"]) == (3, 0)
    assert measured["looks"] >= 3
