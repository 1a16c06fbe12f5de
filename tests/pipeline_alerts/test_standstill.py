"""Which phase of a run stands still when nothing happens, and which does not; and what clears."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from model_registry import outcomes
from model_registry.finetuning_plans import make_rentals
from pipeline_alerts.causes import CLEARING, Cause
from pipeline_alerts.delivery import clearance
from pipeline_alerts.facts import read_reservations
from pipeline_alerts.findings import open_alerts
from pipeline_alerts.listing import list_runs
from pipeline_alerts.standstill import OpenRun, Patience, no_service
from pipeline_alerts.watch import WatchReport
from pipeline_store import uris
from pipeline_store.formats import Alert, AttemptEvent, OutcomeKind
from pipeline_store.layout import StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.phases import BOOT_MINUTES, EVALUATE, TRAIN, Phase
from tests.pipeline_alerts.situations import look, new_run, only, record_of
from tests.pipeline_store.stores import any_store, cloud_storage
from tests.tpu_lifecycle.world import ZONE
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.service.backend import TpuName, TpuState

__all__ = ["any_store", "cloud_storage"]

STALLED, UNUSED, PAUSED = "run-stalled", "tpu-without-job", "paused-with-tpu"
BOTH = [STALLED, UNUSED]
Story = Callable[[Phase], Callable[[], None]]
"""What happens at the beginning; it returns what happens just before the watch looks."""


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    store = StoreLayout(str(tmp_path / "store"))
    situations.reaper_passed(store, hours_ago=0)
    return store


def nothing() -> None:
    """Write nothing more."""


def preparing(_phase: Phase) -> Callable[[], None]:
    """The data job works, here or on Dataflow: the run's folder gets nothing for hours."""
    return nothing


def waiting_for_lineage(phase: Phase) -> Callable[[], None]:
    phase.ticket()
    return phase.ticket


def reserved(phase: Phase) -> Callable[[], None]:
    """The task that asks waits for a slot, or for its next try after a stockout: 15 minutes."""
    phase.reserve()
    return nothing


def asking(phase: Phase) -> Callable[[], None]:
    """There is no capacity; the trigger looks on."""
    record = phase.ask()
    return lambda: phase.lease(record)


def booting(phase: Phase) -> Callable[[], None]:
    """The VM pulls its image; the trigger looks on."""
    record = phase.ready()
    phase.give_job(record)
    return lambda: phase.lease(record)


def training(phase: Phase) -> Callable[[], None]:
    """The job works, and nobody looks on: no triggerer, no scheduler."""
    record = phase.ready()
    phase.give_job(record)
    return lambda: phase.beat(record, TRAIN)


def evaluating(phase: Phase) -> Callable[[], None]:
    """The second job of the same TPU works."""
    record = phase.ready()
    for job_id in (TRAIN, EVALUATE):
        phase.give_job(record, job_id)
    phase.end_job(record)
    return lambda: phase.beat(record, EVALUATE)


def between_jobs(phase: Phase) -> Callable[[], None]:
    """A job has ended, and the VM says that it has nothing to do."""
    record = phase.ready()
    phase.give_job(record)
    phase.end_job(record)
    return lambda: phase.beat(record)


def replacing(phase: Phase) -> Callable[[], None]:
    """A TPU was taken away and is gone; another one is asked for."""
    reservation = phase.reserve()
    situations.lose(reservation, 1)
    record = reservation.new_attempt(2, ZONE).mark_asked()
    return lambda: phase.lease(record)


def given_back(phase: Phase) -> Callable[[], None]:
    """The candidate is judged and exported: there is no TPU any more."""
    phase.ready().mark(AttemptEvent.GONE)
    read_reservations(phase.run)[0].release("delete task")
    return nothing


def asked_a_person(phase: Phase) -> Callable[[], None]:
    situations.asked(phase.run, hours=10)
    return nothing


def training_after_a_question(phase: Phase) -> Callable[[], None]:
    """Somebody cleared the training while a person was asked: the question is still there."""
    situations.asked(phase.run, hours=72)
    return training(phase)


def reserved_after_a_question(phase: Phase) -> Callable[[], None]:
    situations.asked(phase.run, hours=72)
    return reserved(phase)


@pytest.mark.parametrize(
    ("story", "minutes"),
    [
        (preparing, 9 * 60),
        (waiting_for_lineage, 50 * 60),
        (reserved, 19),
        (asking, 20 * 60),
        (booting, BOOT_MINUTES + 15),
        (training, 20 * 60),
        (evaluating, 5 * 60),
        (between_jobs, 19),
        (replacing, 90),
        (given_back, 5 * 60),
        (asked_a_person, 9 * 60),
        (training_after_a_question, 9 * 60),
    ],
)
def test_no_healthy_phase_is_told(store: StoreLayout, story: Story, minutes: float) -> None:
    phase = Phase.of(store)
    goes_on = story(phase)
    with phase.after(minutes):
        goes_on()
        report = phase.look()
    assert (base(report), report.problems) == ([], [])


def dead(story: Story) -> Story:
    """Return the story of which nothing goes on."""

    def begins(phase: Phase) -> Callable[[], None]:
        story(phase)
        return nothing

    return begins


def job_not_taken(phase: Phase) -> Callable[[], None]:
    """The agent lives and does not run what it was given."""
    record = phase.ready()
    phase.give_job(record)
    return lambda: phase.beat(record)


def silent_vm(phase: Phase) -> Callable[[], None]:
    """The job ran, then the VM said no more."""
    record = phase.ready()
    phase.give_job(record)
    phase.beat(record, TRAIN)
    return nothing


def released_and_there(phase: Phase) -> Callable[[], None]:
    """The task that gives the TPU back has died at it."""
    record = phase.ready()
    read_reservations(phase.run)[0].release("delete task")
    return lambda: phase.beat(record)


def lost_and_there(phase: Phase) -> Callable[[], None]:
    """A TPU fell silent, and its deletion is not confirmed; another one is awaited."""
    reservation = phase.reserve()
    record = reservation.new_attempt(1, ZONE).mark_asked().mark(AttemptEvent.READY, workers=1)
    record.mark(AttemptEvent.LOST, "gave no sign", cause="silent")
    other = reservation.new_attempt(2, ZONE).mark_asked()
    return lambda: phase.lease(other)


@pytest.mark.parametrize(
    ("story", "minutes", "told"),
    [
        (dead(waiting_for_lineage), 31, [STALLED]),
        (reserved, 31, [STALLED]),
        (dead(asking), 31, [STALLED]),
        (dead(booting), 31, [STALLED]),
        (dead(booting), BOOT_MINUTES + 21, BOTH),
        (booting, BOOT_MINUTES + 21, [UNUSED]),
        (silent_vm, 21, [UNUSED]),
        (silent_vm, 31, BOTH),
        (between_jobs, 21, [UNUSED]),
        (between_jobs, 31, BOTH),
        (job_not_taken, 31, BOTH),
        (released_and_there, 600, [UNUSED]),
        (lost_and_there, 600, [UNUSED]),
        (dead(asked_a_person), 10 * 60 + 31, [STALLED]),
        (dead(training_after_a_question), 60, BOTH),
        (dead(reserved_after_a_question), 31, [STALLED]),
    ],
)
def test_a_standstill_is_told_once(
    store: StoreLayout, story: Story, minutes: float, told: list[str]
) -> None:
    phase = Phase.of(store)
    goes_on = story(phase)
    with phase.after(minutes):
        goes_on()
        report = phase.look()
        assert base(report) == told
        assert phase.look().raised == []
    for alert in report.raised:
        if alert.cause.startswith("approval-"):
            continue
        assert alert.scope == record_of(phase.run).run_key
        assert "REPRETRAIN_" in alert.reason


def base(report: WatchReport) -> list[str]:
    """Return the kinds of the new alerts about what stands still."""
    return [cause for cause in base_of(report.raised) if cause in CLEARING]


def test_nothing_is_told_when_nobody_wants_to_know(store: StoreLayout) -> None:
    phase = Phase.of(store)
    between_jobs(phase)
    with phase.after(60):
        assert phase.look(patience=Patience(timedelta(0), timedelta(0))).raised == []


def state(name: TpuName, node: str | None) -> TpuState:
    return TpuState(name, queued_resource="ACTIVE" if node else None, node=node)


def test_a_tpu_that_the_service_does_not_have_is_not_told(store: StoreLayout) -> None:
    phase = Phase.of(store)
    between_jobs(phase)
    with phase.after(60):
        report = phase.look(tpu_of=lambda _, record: state(record.name, None))
        assert base(report) == [STALLED]
        report = phase.look(tpu_of=lambda _, record: state(record.name, "READY"))
    assert "The TPU service says: queued resource ACTIVE, node READY" in only(report).reason


def test_a_tpu_that_came_while_nobody_looked_is_told(store: StoreLayout) -> None:
    phase = Phase.of(store)
    record = phase.ask()
    asked: list[AttemptRecord] = []

    def tpu_of(_reservation: OpenReservation, record: AttemptRecord) -> TpuState:
        asked.append(record)
        return state(record.name, "READY")

    with phase.after(29):
        phase.lease(record)
        assert phase.look(tpu_of=tpu_of).raised == []
        assert asked == []  # somebody looks
    with phase.after(60):
        assert base(phase.look(tpu_of=tpu_of)) == BOTH


def test_each_tpu_of_a_run_is_told_by_itself(store: StoreLayout) -> None:
    phase = Phase.of(store)
    [_, second] = make_rentals(store, phase.run, 2)
    record = phase.ready()
    phase.give_job(record)
    reservation = situations.reserved(store, second)
    reservation.new_attempt(1, ZONE).mark_asked().mark(AttemptEvent.READY, workers=1)
    with phase.after(60):
        phase.beat(record, TRAIN)
        alert = only(phase.look())
    assert alert.cause.startswith("tpu-without-job.tpu1-g1-a1-")
    assert alert.scope == record_of(phase.run).run_key


def test_what_goes_on_clears_and_is_told_again_when_it_stops_again(store: StoreLayout) -> None:
    phase = Phase.of(store)
    record = phase.ready()
    phase.give_job(record)
    phase.end_job(record)
    with phase.after(40):
        first = phase.look().raised
    assert base_of(first) == BOTH
    with phase.after(50):
        phase.give_job(record, EVALUATE)
        report = phase.look()
        assert (report.raised, base_of(report.cleared)) == ([], BOTH)
        assert phase.look().cleared == []
    assert all(clearance(store, alert) for alert in first)
    with phase.after(90):
        again = phase.look()
    assert base(again) == BOTH
    assert again.cleared == []
    assert {alert.cause for alert in again.raised}.isdisjoint(alert.cause for alert in first)


def base_of(alerts: list[Alert]) -> list[str]:
    return sorted(alert.cause.partition(".")[0] for alert in alerts)


def test_the_end_of_a_run_clears(store: StoreLayout) -> None:
    phase = Phase.of(store)
    phase.reserve()
    with phase.after(40):
        assert base(phase.look()) == [STALLED]
        outcomes.record(phase.run, OutcomeKind.PROMOTED, "better", written_by="promote")
        assert base_of(phase.look().cleared) == [STALLED]


@pytest.mark.parametrize("hours", [1, 24 * 14])
def test_a_run_that_was_ended_is_looked_at_until_its_tpu_is_gone(
    store: StoreLayout, hours: float
) -> None:
    """As the runbook says: marked as failed, while its DAG is still paused."""
    phase = Phase.of(store)
    between_jobs(phase)
    with phase.after(40):
        assert base(phase.look(is_paused=always)) == [PAUSED, *BOTH]
        ended = phase.look(state="failed", is_paused=always)
        assert base_of(ended.raised) == ["ended-without-outcome"]
        assert base_of(ended.cleared) == [STALLED]
    with phase.after(hours * 60):
        report = phase.look(state="failed", is_paused=always)
        assert (report.raised, report.cleared, report.problems) == ([], [], [])
        assert report.open_runs == 0
        assert base_of(phase.look(state="failed").cleared) == [PAUSED]
        [record] = phase.attempts()
        record.mark(AttemptEvent.GONE)
        assert base_of(phase.look(state="failed").cleared) == [UNUSED]
        assert list_runs(store).all == []


def test_a_tpu_that_is_left_without_a_job_after_the_end_is_told(store: StoreLayout) -> None:
    phase = Phase.of(store)
    training(phase)
    outcomes.record(phase.run, OutcomeKind.FAILED, "it broke", written_by="release")
    assert base(phase.look(state="failed")) == []
    with phase.after(BOOT_MINUTES + 40):
        assert base(phase.look(state="failed")) == [UNUSED]
        report = phase.look(state="failed", tpu_of=lambda _, record: state(record.name, None))
        assert base_of(report.cleared) == [UNUSED]
        assert list_runs(store).all == []


def test_a_tpu_that_may_still_land_after_the_end_is_not_forgotten(store: StoreLayout) -> None:
    phase = Phase.of(store)
    phase.ask()
    phase.look(state="failed", tpu_of=lambda _, record: state(record.name, None))
    assert list_runs(store).renting == [record_of(phase.run).run_key]


def test_a_run_that_ended_with_a_tpu_and_went_on_is_told_that_it_failed_again(
    store: StoreLayout,
) -> None:
    phase = Phase.of(store)
    training(phase)
    assert base_of(phase.look(state="failed").raised) == ["ended-without-outcome"]
    outcomes.reopen(phase.run)
    assert phase.look().raised == []
    outcomes.record(phase.run, OutcomeKind.FAILED, "it broke", written_by="release")
    assert base_of(phase.look(state="failed", cleared=1).raised) == ["run-failed"]


def test_a_damaged_reservation_does_not_hide_the_end(store: StoreLayout) -> None:
    phase = Phase.of(store)
    phase.reserve()
    uris.write(phase.run.reservation(1).record, b"{")
    report = phase.look(state="failed")
    assert base_of(report.raised) == ["ended-without-outcome"]
    assert report.problems
    assert phase.look().problems


def test_what_cannot_be_looked_at_does_not_clear(store: StoreLayout) -> None:
    phase = Phase.of(store)
    phase.reserve()
    with phase.after(40):
        phase.look()
        uris.write(phase.run.reservation(1).record, b"{")
        report = phase.look()
    assert report.problems
    assert report.cleared == []


def test_an_alert_of_another_pass_at_the_same_time_does_not_clear(store: StoreLayout) -> None:
    """Somebody else has found it after this pass had looked at the run."""
    phase = Phase.of(store)
    phase.reserve()
    report = WatchReport()
    with phase.after(40):
        phase.look()
    report.clear(store, CLEARING)
    assert report.cleared == []
    later = WatchReport()
    later.clear(store, CLEARING)
    assert base_of(later.cleared) == [STALLED]


def test_a_paused_dag_that_rents_a_tpu_is_told_for_each_pause(store: StoreLayout) -> None:
    run = new_run(store, {"budget.price_per_chip_hour": 2.0})
    phase = Phase(store, run)
    situations.rent(situations.reserved(store, run), 1, hours=0.25)
    quiet = Patience(timedelta(0), timedelta(0))
    assert phase.look(patience=quiet).raised == []
    alert = only(phase.look(patience=quiet, is_paused=always))
    assert alert.title.endswith("paused while a TPU is rented")
    assert "at most 0.50 USD so far" in alert.reason
    with phase.after(10):
        assert phase.look(patience=quiet, is_paused=always).raised == []
        assert base_of(phase.look(patience=quiet).cleared) == [PAUSED]
        assert base(phase.look(patience=quiet, is_paused=always)) == [PAUSED]


def always(_dag_id: str) -> bool:
    return True


def test_a_pause_without_a_tpu_is_no_news(store: StoreLayout) -> None:
    reservation = situations.reserved(store, new_run(store))
    situations.lose(reservation, 1)
    assert look(store, is_paused=always).raised == []


def test_airflow_is_asked_for_pauses_only_of_runs_that_rent(store: StoreLayout) -> None:
    asked: list[str] = []

    def ask(dag_id: str) -> bool:
        asked.append(dag_id)
        return False

    run = new_run(store)
    look(store, is_paused=ask)
    assert asked == []
    situations.rent(situations.reserved(store, run), 1, hours=0.1)
    look(store, is_paused=ask)
    assert asked == [record_of(run).dag_id]


def test_signs_are_read_on_both_kinds_of_store(any_store: str) -> None:
    store = StoreLayout(any_store)
    run = new_run(store)
    reservation = situations.reserved(store, run)
    reservation.new_attempt(1, ZONE).mark_asked().mark(AttemptEvent.READY, workers=1)
    found = OpenRun.read(store, run, record_of(run))
    [mailbox] = found.mailboxes
    assert set(mailbox.changes) == {"attempt.json", "marks/asked.json", "marks/ready.json"}
    age = datetime.now(UTC) - max(mailbox.signs())
    assert timedelta(minutes=-1) < age < timedelta(minutes=1)
    at_once = Patience(stalled=timedelta(microseconds=1), idle=timedelta(0))
    assert [f.cause for f in found.findings(at_once, no_service)] == [Cause.RUN_STALLED]
    assert open_alerts(store, CLEARING) == []


def test_one_damaged_alert_keeps_no_other_open(store: StoreLayout) -> None:
    phases = [Phase.of(store), Phase.of(store)]
    for phase in phases:
        phase.reserve()
    with phases[0].after(40):
        damaged, other = look(store).raised
        uris.write(store.alert(damaged.scope, damaged.cause), b"{")
    report = look(store)
    assert report.cleared == [other]
    assert f"alert {damaged.scope}/{damaged.cause}" in report.problems[0]
