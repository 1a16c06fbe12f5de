"""The rules of a bill must be able to fail, and a trace must become what another one would log."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from pipeline_store.formats import SpentOn
from verification.chaos.audit import ALIVE, TraceEvent
from verification.spending_check.events import (
    entries,
    only_loops,
    overlap,
    processes,
    span,
    step_seconds,
    unfinished_saves,
)
from verification.spending_check.evidence import known_of
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


def steps_of(told: list[dict[str, Any]]) -> list[tuple[int, float]]:
    return [(one["step_count"], one["step_start_time"]) for one in told if "step_count" in one]


def test_a_trace_is_told_as_starts_steps_and_checkpoints() -> None:
    found = processes(TRACE)
    assert [len(process.events) for process in found] == [len(FIRST), len(SECOND) + 1]
    assert not overlap(found)
    assert span(found) == LENGTH
    assert step_seconds(found) == 60.0
    told = entries(found)
    first = [(1, 3.0), (2, 13.0), (3, 24.0), (4, 34.0), (5, 44.0)]
    assert steps_of(told) == [*first, (3, 47.0), (4, 57.0), (5, 68.0)]
    # The clock stands still between the two processes, and after the last checkpoint.
    assert [one["job_start_time"] for one in told if "job_start_time" in one] == [0.0, 44.0]
    assert [one["job_end_time"] for one in told if "job_end_time" in one] == [68.0]
    # The calculator knows one of two that have the same number.
    checkpoints = [(one["event_type"], one["step"]) for one in told if "event_type" in one]
    assert checkpoints == [("restore", 1), ("save", 2), ("restore", 3), ("save", 4)]


def test_what_lies_between_steps_is_cut_out() -> None:
    late = [
        replace(event, time=event.time + (5.0 if number > 4 else 0.0))
        for number, event in enumerate(FIRST)
    ]
    assert entries(processes(late)) == entries(processes(FIRST))


def test_what_nobody_went_on_from_is_lost_to_the_other_one_too() -> None:
    *_, restart, step, end = entries(processes(FIRST))
    assert restart == {"job_start_time": 44.0}
    assert step == {"step_count": 3, "step_start_time": 44.0}
    assert end == {"job_end_time": 44.0}


def test_a_trainer_that_ended_between_two_steps_had_begun_none() -> None:
    told = entries(processes([*life(1, 0.0, 0, 1, 2, saves=2), *life(2, 50.0, 2, 3, 4, saves=4)]))
    assert [step for step, _ in steps_of(told)] == [1, 2, 3, 3, 4, 5]


def test_a_step_under_way_goes_on_for_as_long_as_its_process_is_seen() -> None:
    begun = TraceEvent(1, "begin", 4, 44.0, "t")
    seen = [TraceEvent(1, ALIVE, 0, time, "t") for time in (1.0, 46.0, 47.5)]
    found = processes([*FIRST, begun, *seen])
    assert span(found) == 47.5
    assert step_seconds(found) == 43.5
    *_, last, _, step, _ = entries(found)
    assert (last["step_count"], last["step_start_time"]) == (6, 47.5)
    assert step["step_count"] == 3


def test_a_checkpoint_that_the_vm_did_not_live_to_tell_of_is_one_to_the_other_too() -> None:
    """Its second trainer goes on from step 4, and the first was heard of in step 3 last."""
    known = [
        one for event in life(1, 0.0, 0, 1, 2, 3, 4, saves=4) if (one := known_of(event, 30.0))
    ]
    told = entries(processes([*known, *life(2, 60.0, 4, 5, 6)]))
    assert steps_of(told)[:5] == [(1, 3.0), (2, 13.0), (3, 23.0), (4, 30.0), (5, 30.0)]
    assert steps_of(told)[5] == (5, 33.0)
    *_, before_end, end = entries(processes(known))
    assert before_end == {"step_count": 4, "step_start_time": 30.0}
    assert end == {"job_end_time": 30.0}


def test_of_a_vm_that_never_said_a_word_nothing_is_known() -> None:
    assert known_of(FIRST[0], 0.0) is None


def test_a_first_step_without_a_second_one_is_told_to_nobody() -> None:
    found = processes([*life(1, 0.0, 0, 1), TraceEvent(1, "begin", 1, 13.0, "t")])
    assert only_loops(found) == 10.0
    assert steps_of(entries(found))[:2] == [(1, 3.0), (2, 3.0)]
    assert only_loops(processes(FIRST)) == 0.0


def test_a_checkpoint_that_was_never_committed_is_told_to_nobody() -> None:
    hanging = [TraceEvent(1, "save", 4, 44.0, "t"), TraceEvent(1, ALIVE, 0, 52.0, "t")]
    found = processes([*FIRST, *hanging])
    assert unfinished_saves(found) == 8.0
    assert entries(found) == entries(processes(FIRST))
    assert unfinished_saves(processes(TRACE)) == 0.0
