"""Stores in which something is wrong: one maker for each thing there is an alert about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from model_registry import outcomes
from pipeline_alerts.standstill import Patience, TpuOf, no_service
from pipeline_alerts.watch import Watch, WatchReport, WatchSettings
from pipeline_store import identity, uris
from pipeline_store.formats import (
    Alert,
    Answer,
    AttemptEvent,
    CorpusSeen,
    HangReport,
    JobPhase,
    OutcomeKind,
    PhaseName,
    ProductionPointer,
    ReaperPass,
    RunApproval,
    RunRecord,
    Verdict,
    VerdictKind,
    WatchPass,
)
from pipeline_store.layout import AttemptLayout, RunLayout, StoreLayout
from tests.tpu_lifecycle.world import ZONE, write_run
from tpu_lifecycle.records.reservation import OpenReservation, reserve

OWNER = "our-team"
PATTERN = "corpus/{partition}/*"
PATIENCE = Patience(stalled=timedelta(minutes=30), idle=timedelta(minutes=20))


def link_of(dag_id: str, run_id: str) -> str:
    return f"http://airflow/dags/{dag_id}/runs/{run_id}"


def answer_link_of(dag_id: str, run_id: str) -> str:
    return f"{link_of(dag_id, run_id)}/required_actions"


def record_of(run: RunLayout) -> RunRecord:
    return RunRecord.load(run.record)


def new_run(store: StoreLayout, overrides: Mapping[str, Any] | None = None) -> RunLayout:
    return write_run(store, overrides)


def reserved(store: StoreLayout, run: RunLayout) -> OpenReservation:
    return reserve(store, run.root, project_id="project", owner=OWNER, bundle_sha256="0" * 64)


def lose(reservation: OpenReservation, count: int, first: int = 1) -> None:
    """Record TPUs that were READY and then taken."""
    for number in range(first, first + count):
        record = reservation.new_attempt(number, ZONE).mark_asked()
        record = record.mark(AttemptEvent.READY, workers=1)
        record = record.mark(AttemptEvent.LOST, "taken by the service", cause="taken")
        record.mark(AttemptEvent.GONE)


def rent(reservation: OpenReservation, number: int, hours: float) -> None:
    """Record a TPU that is READY, of a node that was made some hours ago."""
    attempt = reservation.new_attempt(number, ZONE)
    made = datetime.now(UTC) - timedelta(hours=hours)
    attempt.attempt.model_copy(update={"created": made}).write(attempt.layout.record)
    attempt = reservation.attempt(number).mark_asked()
    attempt.mark(AttemptEvent.READY, workers=1, node_created=made)


def hang(reservation: OpenReservation, number: int, *, hang_number: int) -> AttemptLayout:
    """Record that a job hung while it saved on the first of two hosts of an attempt."""
    attempt = reservation.attempt(number)
    first = HangReport(
        worker=0,
        token=attempt.attempt.token,
        job_id="010-train",
        number=hang_number,
        found=datetime.now(UTC),
        phase=JobPhase(name=PhaseName.SAVE, entered=datetime.now(UTC)),
        still_seconds=31.0,
        limit_seconds=30.0,
        step=7,
        top=["call (a.py:1)", "ours (b.py:2)"],
        stacks="all of them",
    )
    there = {"worker": 1, "limit_seconds": None, "top": []}
    meeting = JobPhase(name=PhaseName.MEETING, entered=datetime.now(UTC))
    second = first.model_copy(update=there | {"phase": meeting})
    for report in (first, second):
        report.create(attempt.layout.hang(report.job_id, report.number, report.worker))
    return attempt.layout


def reserved_for(reservation: OpenReservation, hours: float) -> None:
    """Make a reservation look some hours old."""
    created = datetime.now(UTC) - timedelta(hours=hours)
    reservation.record.model_copy(update={"created": created}).write(reservation.layout.record)


def began(run: RunLayout, hours_ago: float) -> None:
    created = datetime.now(UTC) - timedelta(hours=hours_ago)
    record_of(run).model_copy(update={"created": created}).write(run.record)


def rejected(run: RunLayout, reason: str = "the candidate's loss is higher") -> None:
    Verdict(
        verdict=VerdictKind.WORSE,
        reason=reason,
        candidate_loss=5.0,
        reference_loss=4.0,
        reference="v-0",
        documents=10,
        improvement=-1.0,
        improvement_low=-1.1,
        improvement_high=-0.9,
    ).create(run.verdict("v-0"))
    outcomes.record(run, OutcomeKind.REJECTED, reason, written_by="judge")


def put_into_use(store: StoreLayout, record: RunRecord) -> str:
    """Make the version of a run the one in use, and return its id."""
    version_id = identity.version_id(record.run_key)
    pointer = ProductionPointer(
        sequence=1, version_id=version_id, changed=datetime.now(UTC), reason="better"
    )
    pointer.write(store.lineage(record.lineage_id).production)
    return version_id


def asked(run: RunLayout, minutes_ago: float = 1, hours: float = 10) -> RunApproval:
    """Ask a person about a run's candidate, as the task that asks does."""
    time = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    question = RunApproval(
        candidate_sha256="0" * 64,
        baseline="v-0",
        answer=Answer.WAITING,
        asked=time,
        deadline=time + timedelta(hours=hours),
    )
    question.write(run.approval)
    return question


def reaper_passed(store: StoreLayout, hours_ago: float) -> None:
    ReaperPass(
        owner=OWNER,
        project_id="project",
        finished=datetime.now(UTC) - timedelta(hours=hours_ago),
        host="host",
        seen=0,
        acted_on=0,
        problems=[],
    ).write(store.reaper_pass(OWNER, "project"))


def watched_for(store: StoreLayout, hours: float) -> None:
    """Make the watch look as if it had looked all the time."""
    now = datetime.now(UTC)
    WatchPass(
        unbroken_since=now - timedelta(hours=hours),
        finished=now - timedelta(minutes=5),
        host="host",
        open_runs=0,
        problems=[],
    ).write(store.watch_pass)


def corpus_was_quiet_for(store: StoreLayout, days: float) -> None:
    """Make the corpus, as it is, look as if it had been so for days."""
    now = datetime.now(UTC)
    uris.write(uris.join(store.root, "corpus/2026-01-01/a.txt"), b"text")
    CorpusSeen(
        pattern=PATTERN,
        partitions=["2026-01-01"],
        grown=now - timedelta(days=days),
        looked=now - timedelta(hours=2),
    ).write(store.corpus_seen)


def look(
    store: StoreLayout,
    state: str | Callable[[str, str], str | None] | None = "running",
    *,
    cleared: int | None = 0,
    failed: tuple[str, ...] = (),
    is_paused: Callable[[str], bool] = lambda _dag_id: False,
    tpu_of: TpuOf = no_service,
    **changes: Any,
) -> WatchReport:
    """Make a pass of the watch over a store whose runs all have one state in Airflow.

    :param cleared: how often they were all cleared.
    :param failed: the tasks of each that have failed.
    """
    ask = state if callable(state) else lambda _dag_id, _run_id: state
    settings = WatchSettings(
        **{
            "owner": OWNER,
            "overdue": timedelta(hours=30),
            "quiet": timedelta(days=3),
            "pattern": PATTERN,
            "patience": PATIENCE,
            **changes,
        }
    )
    asked = (ask, lambda _dag_id, _run_id: cleared, lambda _dag_id, _run_id: failed)
    return Watch(store, settings, *asked, link_of, answer_link_of, is_paused, tpu_of).look()


def causes(report: WatchReport) -> list[str]:
    return sorted(alert.cause for alert in report.raised)


def only(report: WatchReport) -> Alert:
    assert report.problems == []
    [alert] = report.raised
    return alert
