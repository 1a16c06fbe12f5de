"""How an attempt's time is cut: the pieces sum up to the billed time, whatever is known of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_store.formats import AgentHello, JobUsage, SpentOn
from tpu_lifecycle.records.attempt_time import Facts, billed, pieces, unbilled

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
JOB = "010-train"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def hello(**told: Any) -> AgentHello:
    return AgentHello(
        worker=0, token="", started=at(150), bundle_sha256="", host="h", starts=1, **told
    )


def job(started: float, ended: float | None, job_id: str = JOB, **seconds: float) -> JobUsage:
    return JobUsage(
        job_id=job_id,
        started=at(started),
        ended=None if ended is None else at(ended),
        seconds={SpentOn[name.upper()]: value for name, value in seconds.items()},
    )


HELLO = hello(first_started=at(150), boot_began=at(90), image_pulled=at(140))
TIMES: dict[str, Any] = {
    "since": at(-20),
    "created": at(0),
    "rented": at(30),
    "given_up": at(1000),
    "gone": at(1020),
}
BEFORE = {
    SpentOn.TPU_INITIALIZATION: 60.0,
    SpentOn.IMAGE_PULL: 50.0,
    SpentOn.CODE: 10.0,
    SpentOn.JOB_WAIT: 10.0,
}
TRAINED = job(160, 900, step=700, compile=40)

CASES: dict[str, tuple[dict[str, Any], dict[SpentOn, float]]] = {
    "a training that succeeded": (
        {"hello": HELLO, "jobs": [TRAINED], "beat": at(990)},
        BEFORE | {SpentOn.STEP: 700, SpentOn.COMPILE: 40, SpentOn.IDLE: 100, SpentOn.DELETION: 20},
    ),
    "lost while it ran": (
        {"hello": HELLO, "jobs": [job(160, None, step=600)], "beat": at(760), "is_lost": True},
        BEFORE | {SpentOn.STEP: 600, SpentOn.SILENCE: 240, SpentOn.DELETION: 20},
    ),
    "lost with steps that no checkpoint has": (
        {
            "hello": HELLO,
            "jobs": [
                job(160, None, step=600).model_copy(update={"unsaved_seconds": 90.0}),
            ],
            "beat": at(760),
            "is_lost": True,
        },
        BEFORE
        | {SpentOn.STEP: 510, SpentOn.LOST_STEPS: 90, SpentOn.SILENCE: 240, SpentOn.DELETION: 20},
    ),
    "lost after a checkpoint that its last word did not know": (
        {
            "hello": HELLO,
            "jobs": [
                job(160, None, step=600).model_copy(
                    update={
                        "unsaved_seconds": 90.0,
                        "unsaved_after": {100: 90.0, 120: 20.0},
                        "begun_at": 0,
                        "last_step": 125,
                    }
                ),
            ],
            "beat": at(760),
            "is_lost": True,
            "resumed": {JOB: 120},
        },
        BEFORE
        | {SpentOn.STEP: 580, SpentOn.LOST_STEPS: 20, SpentOn.SILENCE: 240, SpentOn.DELETION: 20},
    ),
    "lost when it had nothing to do": (
        {"hello": HELLO, "jobs": [TRAINED], "beat": at(960), "is_lost": True},
        BEFORE
        | {SpentOn.STEP: 700, SpentOn.COMPILE: 40, SpentOn.IDLE: 60}
        | {SpentOn.SILENCE: 40, SpentOn.DELETION: 20},
    ),
    "a probe after it": (
        {
            "hello": HELLO,
            "jobs": [TRAINED, job(910, 1000, "030-probe", step=50, restore=30, stall=10)],
            "beat": at(990),
            "probes": frozenset({"030-probe"}),
        },
        BEFORE
        | {SpentOn.STEP: 700, SpentOn.COMPILE: 40, SpentOn.PROBE: 80, SpentOn.STALL: 10}
        | {SpentOn.JOB_WAIT: 20, SpentOn.DELETION: 20},
    ),
    "its agents never reported": ({}, {SpentOn.TPU_INITIALIZATION: 970, SpentOn.DELETION: 20}),
    "an agent that kept no account": (
        {
            "hello": hello(),
            "jobs": [
                JobUsage(job_id=JOB, started=at(160), stepping_seconds=500.0),
            ],
            "beat": at(990),
        },
        {SpentOn.TPU_INITIALIZATION: 120, SpentOn.JOB_WAIT: 10, SpentOn.STEP: 500}
        | {SpentOn.UNATTRIBUTED: 330, SpentOn.SILENCE: 10, SpentOn.DELETION: 20},
    ),
    "a job that saves what it has after its TPU was given up": (
        {"hello": HELLO, "jobs": [job(160, 1010, step=845, save=5)], "beat": at(990)},
        BEFORE | {SpentOn.STEP: 845, SpentOn.SAVE: 5, SpentOn.DELETION: 10},
    ),
    "a clock that is ahead": (
        {"hello": HELLO, "jobs": [job(160, 1440, step=640, compile=200)], "beat": at(1450)},
        {SpentOn.STEP: 640, SpentOn.COMPILE: 200, SpentOn.UNATTRIBUTED: 130, SpentOn.DELETION: 20},
    ),
    "a clock that is behind": (
        {"hello": HELLO, "node_created": at(110), "jobs": [TRAINED], "beat": at(990)},
        {SpentOn.STEP: 700, SpentOn.COMPILE: 40, SpentOn.UNATTRIBUTED: 230, SpentOn.DELETION: 20},
    ),
    "a clock that jumped, and a job that says more than there was": (
        {"hello": HELLO, "jobs": [job(160, 2440, step=970, compile=970)], "beat": at(2450)},
        {SpentOn.STEP: 485, SpentOn.COMPILE: 485, SpentOn.DELETION: 20},
    ),
}


@pytest.mark.parametrize(("known", "expected"), CASES.values(), ids=CASES)
def test_the_pieces_sum_up(known: dict[str, Any], expected: dict[SpentOn, float]) -> None:
    found = billed(Facts(**TIMES, **known))
    assert found == pytest.approx(expected)
    assert sum(found.values()) == pytest.approx(990)


def test_while_a_job_runs_nothing_of_it_is_lost() -> None:
    known = job(160, None, step=600).model_copy(update={"unsaved_seconds": 90.0})
    times = TIMES | {"given_up": None, "gone": at(760)}
    found = billed(Facts(**times, hello=HELLO, jobs=[known], beat=at(760)))
    assert found == pytest.approx(BEFORE | {SpentOn.STEP: 600})


def test_waiting_is_apart_from_what_is_billed() -> None:
    facts = Facts(**TIMES, after=SpentOn.ZONE_CHANGE)
    assert unbilled(facts) == {SpentOn.ZONE_CHANGE: 20, SpentOn.QUEUE: 30}


def test_an_attempt_without_a_node_is_not_billed() -> None:
    facts = Facts(**TIMES | {"rented": None})
    assert billed(facts) == {}
    assert unbilled(facts) == {SpentOn.QUEUE: 1020}


moments = st.one_of(st.none(), st.floats(-500, 2000).map(at))
jobs = st.builds(
    lambda started, end, step: job(started, None, step=step).model_copy(update={"ended": end}),
    st.floats(-500, 2000),
    moments,
    st.floats(0, 3000),
)
facts = st.builds(
    lambda given_up, boot, **known: Facts(
        **TIMES | {"given_up": given_up}, hello=hello(**boot), **known
    ),
    given_up=moments,
    boot=st.fixed_dictionaries(
        dict.fromkeys(("first_started", "boot_began", "image_pulled"), moments)
    ),
    beat=moments,
    jobs=st.lists(jobs, max_size=3),
    is_lost=st.booleans(),
)


@given(facts)
def test_the_pieces_sum_up_whatever_the_clocks_say(known: Facts) -> None:
    found = billed(known)
    assert sum(found.values()) == pytest.approx(990)
    assert all(value > 0 for value in found.values())
    # As parts of a trace they follow each other.
    line = pieces(known)
    assert [one.start for one in line] == [known.rented, *(one.end for one in line[:-1])]
    assert line[-1].end == max(known.gone, line[-1].start)
    for one in line:
        length = (one.end - one.start).total_seconds()
        assert sum(one.seconds.values()) == pytest.approx(length)
