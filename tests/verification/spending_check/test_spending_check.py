"""The rules of a bill must be able to fail, and a trace must become what another one would log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from pipeline_store.formats import SpentOn
from verification.chaos.audit import TraceEvent
from verification.spending_check.events import entries, overlap, processes, span, step_seconds
from verification.spending_check.judge import FORGERIES, can_forge, forged, judge

STEP = 10.0


def life(pid: int, began: float, start: int, *steps: int, saves: int = 0) -> list[TraceEvent]:
    """Return a trainer that takes 2 s to start, 1 s to restore, and 10 s for each step."""
    now = began + 3
    events = [("process", 0, began), ("restore", 0, began + 2), ("start", start, now)]
    for step in steps:
        events += [("begin", step - 1, now), ("step", step, now + STEP)]
        now += STEP
        if step == saves:
            events += [("save", step, now), ("commit", step, now + 1)]
            now += 1
    return [TraceEvent(pid, name, step, time, "t") for name, step, time in events]


# Two steps are kept and two are lost; the second trainer does them again and goes on to the end.
FIRST = life(1, 0.0, 0, 1, 2, 3, 4, saves=2)
SECOND = life(2, 50.0, 2, 3, 4, saves=4)
END = TraceEvent(2, "end", 4, SECOND[-1].time + 0.5, "t")
TRACE = [*FIRST, *SECOND, END]
LENGTH = END.time
ORACLE = {
    "step": 40.0,
    "wasted_progress_from_disruption": 20.0,
    "unproductive_checkpoint_save_time": 2.0,
    "unproductive_checkpoint_restore_time": 2.0,
    "training_prep": 4.0,
}
SECONDS = {
    SpentOn.PROGRAM_STARTUP: 4.0,
    SpentOn.RESTORE: 2.0,
    SpentOn.STEP: 40.0,
    SpentOn.LOST_STEPS: 20.0,
    SpentOn.SAVE: 2.0,
    SpentOn.DELETION: 32.0,
}


def evidence(**changes: Any) -> dict[str, Any]:
    entry = {
        "generation": 1,
        "attempt": 1,
        "chips": 4,
        "billed_seconds": 100.0,
        "chip_seconds": 400.0,
        "cost": 1.0,
        "seconds": {str(name): value for name, value in SECONDS.items()},
    }
    return {
        "service_chip_seconds": 396.0,
        "entries": [entry],
        "totals": {"chip_seconds": 400.0, "cost": 1.0},
        "trace": [asdict(event) for event in TRACE],
        "other_startup": 0.0,
    } | changes


def test_a_bill_that_keeps_the_rules() -> None:
    verdict = judge(evidence(), ORACLE)
    assert verdict.problems == []
    assert verdict.numbers["compared"] is True


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_counted_twice_is_found(name: str) -> None:
    assert can_forge(evidence(), name)
    assert judge(forged(evidence(), name), ORACLE).problems
    assert judge(evidence(), ORACLE).problems == []


def test_a_bill_below_the_services_own_is_found() -> None:
    (problem,) = judge(evidence(service_chip_seconds=410.0), ORACLE).problems
    assert "the service has billed 410.0" in problem


def test_too_much_without_a_name_is_found() -> None:
    known = evidence()
    known["entries"][0]["seconds"] |= {"deletion": 29.0, "unattributed": 3.0}
    (problem,) = judge(known, ORACLE).problems
    assert problem == "3.0% of the bill are unattributed"


def test_trainers_that_overlap_are_not_compared() -> None:
    trace = [asdict(event) for event in [*life(1, 0.0, 0, 1, 2), *life(2, 5.0, 0, 1)]]
    assert judge(evidence(trace=trace), {}).numbers["compared"] is False


def test_a_trace_is_told_as_starts_steps_and_checkpoints() -> None:
    found = processes(TRACE)
    assert [len(process.events) for process in found] == [len(FIRST), len(SECOND) + 1]
    assert not overlap(found)
    assert span(found) == LENGTH
    assert step_seconds(found) == 60.0
    told = entries(found)
    assert [one["step_count"] for one in told if "step_count" in one] == [0, 1, 2, 3, 2, 3]
    assert [one["job_start_time"] for one in told if "job_start_time" in one] == [0.0, 50.0]
    assert [one["job_end_time"] for one in told if "job_end_time" in one] == [SECOND[-1].time]
    saved = [one["step"] for one in told if one.get("event_type") == "save"]
    assert saved == [2, 4]


def test_what_nobody_went_on_from_is_lost_to_the_other_one_too() -> None:
    *_, restart, step = entries(processes(FIRST))
    assert restart == {"job_start_time": FIRST[-1].time}
    assert step == {"step_count": 2, "step_start_time": FIRST[-1].time}


def test_a_trainer_that_ended_between_two_steps_had_begun_none() -> None:
    told = entries(processes([*life(1, 0.0, 0, 1, 2, saves=2), *life(2, 50.0, 2, 3, saves=3)]))
    assert [one["step_count"] for one in told if "step_count" in one] == [0, 1, 2, 2]
