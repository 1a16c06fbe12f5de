from __future__ import annotations

from datetime import timedelta

import pytest

from pipeline_store import uris
from pipeline_store.formats import AttemptBill, AttemptEvent, Heartbeat, JobUsage
from tests.tpu_lifecycle.world import World
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.ledger import idle_share, summary


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
    Heartbeat(
        worker=0,
        token=token or record.attempt.token,
        time=ready,
        job_id=None,
        progress=None,
        log_chunks=0,
        disk_free_bytes=1,
        usage=usage,
    ).write(record.layout.heartbeat(0))


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


def test_more_steps_than_time_is_no_negative_idleness(world: World) -> None:
    reservation = world.reserve()
    report_usage(world.obtain_ready(reservation), [1e6])
    ledger = world.release(reservation).ledger
    assert ledger.entries[0].idle_share == idle_share(ledger) == 0.0


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
