from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from pipeline_store import uris
from pipeline_store.formats import (
    AgentHello,
    AttemptBill,
    AttemptEvent,
    AttemptMark,
    CheckpointManifest,
    Heartbeat,
    JobUsage,
    Seconds,
    SpentOn,
)
from pipeline_store.layout import RunLayout
from tests.tpu_lifecycle.world import World
from tpu_lifecycle.records.attempts import AttemptRecord, create_attempt
from tpu_lifecycle.records.ledger import idle_share, so_far, summary
from tpu_lifecycle.records.reservation import OpenReservation


def report_usage(record: AttemptRecord, stepping: list[float], *, token: str = "") -> None:
    """Write what worker 0 says of its jobs: the first step 40 s after READY."""
    ready = record.marks[AttemptEvent.READY].time
    usage = [
        JobUsage(
            job_id=f"0{number}0-job",
            started=ready,
            first_step=ready + timedelta(seconds=40 + 60 * number),
            stepping_seconds=seconds,
        )
        for number, seconds in enumerate(stepping)
    ]
    beat(token or record.attempt.token, ready, usage).write(record.layout.heartbeat(0))


def beat(token: str, time: datetime, usage: list[JobUsage]) -> Heartbeat:
    return Heartbeat(
        worker=0,
        token=token,
        time=time,
        job_id=None,
        progress=None,
        log_chunks=0,
        disk_free_bytes=1,
        usage=usage,
    )


def test_the_ledger_says_how_long_it_took_and_what_was_idle(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    report_usage(record, [0.01, 0.02])
    ledger = world.release(reservation).ledger
    [entry] = ledger.entries
    assert entry.ready_to_first_step_seconds == pytest.approx(40)
    assert entry.stepping_seconds == pytest.approx(0.03)
    assert entry.idle_share == pytest.approx(1 - 0.03 / entry.billed_seconds)
    assert idle_share(ledger) == pytest.approx(entry.idle_share)
    assert sum(entry.seconds.values()) == pytest.approx(entry.billed_seconds)
    assert AttemptBill.load(record.layout.bill).entries == [entry]
    [line] = summary(ledger)
    assert "first step 40 s after READY" in line
    assert "1 chip(s)" in line


STORED_LATE = timedelta(seconds=0.5)


@pytest.mark.parametrize("ours", [timedelta(0), timedelta(seconds=-40), timedelta(hours=3)])
@pytest.mark.parametrize(
    "theirs", [timedelta(0), timedelta(minutes=10), timedelta(minutes=-10), timedelta(days=400)]
)
def test_a_clock_that_differs_changes_no_name(
    world: World, ours: timedelta, theirs: timedelta
) -> None:
    """The VM's and the controller's clocks differ from each other, and both from the store's."""
    reservation = world.reserve()
    record = new_attempt(reservation)
    true, told = told_by_vm(record, theirs - ours)
    for uri, time in told.items():
        stored = time - (theirs if "/workers/" in uri else ours) + STORED_LATE
        os.utime(uri, (stored.timestamp(), stored.timestamp()))
    [entry] = so_far(reservation.record, reservation.layout).entries
    assert entry.seconds == pytest.approx(true, abs=2)
    assert entry.ready_to_first_step_seconds == pytest.approx(30, abs=2)


def test_where_the_store_says_nothing_of_clocks_no_name_is_invented(world: World) -> None:
    """A copied store has the times of the copy."""
    reservation = world.reserve()
    true, told = told_by_vm(new_attempt(reservation), timedelta(hours=-2))
    for uri in told:
        os.utime(uri)
    [entry] = so_far(reservation.record, reservation.layout).entries
    known = {SpentOn.COMPILE, SpentOn.STEP, SpentOn.DELETION}
    unknown = sum(seconds for name, seconds in true.items() if name not in known)
    expected = {name: true[name] for name in known} | {SpentOn.UNATTRIBUTED: unknown}
    assert entry.seconds == pytest.approx(expected, abs=2)


def test_more_steps_than_time_is_no_negative_idleness(world: World) -> None:
    reservation = world.reserve()
    report_usage(world.obtain_ready(reservation), [1e6])
    ledger = world.release(reservation).ledger
    assert ledger.entries[0].idle_share == idle_share(ledger) == 0.0


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def new_attempt(reservation: OpenReservation) -> AttemptRecord:
    """Write an attempt whose node was there from 10 to 1020 s, seen READY at 130 s."""
    number, zone = 1, reservation.record.zones[0]
    record = create_attempt(reservation.layout, reservation.record, number, zone, None)
    assert record is not None
    attempt = record.attempt.model_copy(update={"created": at(0)})
    attempt.write(record.layout.record)
    for event, seconds, node in [
        (AttemptEvent.READY, 130, at(10)),
        (AttemptEvent.CANCELLED, 1000, None),
        (AttemptEvent.GONE, 1020, None),
    ]:
        mark = AttemptMark(event=event, time=at(seconds), node_created=node)
        mark.write(record.layout.mark(event))
    return AttemptRecord(attempt, record.layout, {})


def told_by_vm(record: AttemptRecord, ahead: timedelta) -> tuple[Seconds, dict[str, datetime]]:
    """Write what a VM says of a training whose clock is ahead of the marks'.

    :returns: the names that are right, and for each file the time that it says.
    """
    token, layout = record.attempt.token, record.layout
    AgentHello(
        worker=0,
        token=token,
        started=at(100) + ahead,
        bundle_sha256="",
        host="h",
        starts=1,
        first_started=at(100) + ahead,
        boot_began=at(40) + ahead,
        image_pulled=at(90) + ahead,
    ).write(layout.hello(0))
    job = JobUsage(
        job_id="010-train",
        started=at(120) + ahead,
        ended=at(900) + ahead,
        first_step=at(160) + ahead,
        seconds={SpentOn.COMPILE: 80, SpentOn.STEP: 700},
    )
    beat(token, at(990) + ahead, [job]).write(layout.heartbeat(0))
    true = {SpentOn.TPU_INITIALIZATION: 30.0, SpentOn.IMAGE_PULL: 50.0, SpentOn.CODE: 10.0}
    true |= {SpentOn.JOB_WAIT: 20.0, SpentOn.COMPILE: 80.0, SpentOn.STEP: 700.0}
    true |= {SpentOn.IDLE: 100.0, SpentOn.DELETION: 20.0}
    return true, {
        layout.record: at(0),
        layout.mark(AttemptEvent.READY): at(130),
        layout.hello(0): at(100) + ahead,
        layout.heartbeat(0): at(990) + ahead,
    }


def told_before_the_end(record: AttemptRecord, unsaved: float) -> None:
    """Write the last word of a VM that was lost with a training at step 25, kept up to 10."""
    job = JobUsage(
        job_id="010-train",
        started=at(120),
        seconds={SpentOn.STEP: 250},
        unsaved_seconds=unsaved,
        unsaved_after={10: unsaved, 20: 50.0},
        begun_at=0,
        last_step=25,
    )
    _, told = told_by_vm(record, timedelta())
    beat(record.attempt.token, at(400), [job]).write(record.layout.heartbeat(0))
    for uri, time in (told | {record.layout.heartbeat(0): at(400)}).items():
        os.utime(uri, (time.timestamp(), time.timestamp()))


def commit(record: AttemptRecord, step: int) -> None:
    run = RunLayout(record.layout.root.rsplit("/", 4)[0])
    CheckpointManifest(
        step=step,
        holder_token=record.attempt.token,
        prefix="",
        files=[],
        config_sha256="",
        data_sha256="",
        random_seed=0,
        created=at(500),
        loss=1.0,
        tokens=0,
        seconds=0.0,
        resumed_from=[],
    ).write(run.training.checkpoint(step))


@pytest.mark.parametrize(
    ("committed", "lost"), [([], 150.0), ([10], 150.0), ([10, 20], 50.0), ([20, 30], 0.0)]
)
def test_a_step_that_a_committed_checkpoint_has_is_not_lost(
    world: World, committed: list[int], lost: float
) -> None:
    """Its trainer committed it after the VM's last sign of life."""
    reservation = world.reserve()
    record = new_attempt(reservation)
    told_before_the_end(record, 150.0)
    for step in committed:
        commit(record, step)
    [entry] = so_far(reservation.record, reservation.layout).entries
    assert entry.seconds.get(SpentOn.LOST_STEPS, 0.0) == lost
    assert entry.seconds[SpentOn.STEP] == 250 - lost


def test_what_a_later_attempt_went_on_from_says_what_the_one_before_lost(world: World) -> None:
    """By then its checkpoints are removed, and the newest are of the one after it."""
    reservation = world.reserve()
    first = new_attempt(reservation)
    told_before_the_end(first, 150.0)
    second = create_attempt(
        reservation.layout, reservation.record, 2, reservation.record.zones[0], None
    )
    assert second is not None
    commit(second, 100)
    unbegun = JobUsage(job_id="010-train", started=at(1100), seconds={SpentOn.STEP: 1})
    beat(second.attempt.token, at(1200), [unbegun]).write(second.layout.heartbeat(0))
    entry, _ = so_far(reservation.record, reservation.layout).entries
    assert entry.seconds[SpentOn.LOST_STEPS] == 150
    begun = unbegun.model_copy(update={"begun_at": 20})
    beat(second.attempt.token, at(1200), [begun]).write(second.layout.heartbeat(0))
    entry, _ = so_far(reservation.record, reservation.layout).entries
    assert entry.seconds[SpentOn.LOST_STEPS] == 50


@pytest.mark.parametrize("is_damaged", [True, False])
def test_books_are_closed_without_a_readable_heartbeat(world: World, is_damaged: bool) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    if is_damaged:
        uris.write(record.layout.heartbeat(0), b"not json")
    else:
        report_usage(record, [5.0], token="an orphan's")  # noqa: S106
    ledger = world.release(reservation).ledger
    [entry] = ledger.entries
    assert (entry.ready_to_first_step_seconds, entry.stepping_seconds) == (None, 0.0)
    assert entry.idle_share == 1.0
    assert "no step" in summary(ledger)[0]


def test_what_never_had_a_node_is_not_summed_up(world: World) -> None:
    reservation = world.reserve()
    reservation.new_attempt(1, reservation.record.zones[0]).mark(AttemptEvent.ANSWERED)
    ledger = world.release(reservation).ledger
    assert ledger.entries[0].idle_share is None
    assert idle_share(ledger) is None
    assert summary(ledger) == []
