"""Checks all runs and the installation: raises alerts, and records outcomes that are missing.

Airflow calls no callback when a person ends a run, or when a crash takes everything down. Such a
run is found by its record: it has a ``run.json`` and no ``outcome.json``, and Airflow says that it
ended. The TPUs of a run that has ended are checked until they are gone.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from model_registry import attempts, outcomes
from pipeline_alerts.backfills import check_backfill
from pipeline_alerts.causes import CLEARING, Cause
from pipeline_alerts.findings import Finding, Findings, open_alerts
from pipeline_alerts.installation import check_corpus, check_identity, check_reaper
from pipeline_alerts.listing import list_runs
from pipeline_alerts.raising import (
    AlertedRun,
    failure_reasons,
    has_failure_alert,
    raise_about_installation,
)
from pipeline_alerts.running import STORM_LOSSES, RunningRun, recent
from pipeline_alerts.standstill import OpenRun, Patience, TpuOf
from pipeline_store import uris
from pipeline_store.formats import (
    BackfillRuns,
    FormatError,
    LineageAttempt,
    OutcomeKind,
    RentingRun,
    RunOutcome,
    RunRecord,
    Verdict,
    VerdictKind,
    WatchedRun,
    WatchPass,
)
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout

MAX_GAP = timedelta(minutes=30)
"""Longest gap between passes that still counts as unbroken watching; see :func:`check_reaper`."""

WRITER = "pipeline_watch"
ENDED_STATES = ("success", "failed")
NOBODY_REPORTED = "No task of it reported a failure: a person ended it, or it died with all else."

StateOf = Callable[[str, str], str | None]
"""State of a DAG run in Airflow, by DAG id and run id; None: Airflow has no such run."""

ClearedOf = Callable[[str, str], int | None]
"""How often tasks of a DAG run were cleared in Airflow; None: Airflow has no such run."""

FailedTasksOf = Callable[[str, str], Iterable[str]]
"""The tasks of a DAG run that have failed in Airflow."""

LinkOf = Callable[[str, str], str | None]
"""A page of a DAG run in Airflow, by DAG id and run id."""


@dataclass(frozen=True)
class WatchSettings:
    """The installation's settings for the watch.

    :ivar owner: owner label of the TPUs that the reaper deletes.
    :ivar overdue: time after which a run is reported as overdue.
    :ivar quiet: time without a new partition after which that is reported; zero: never.
    :ivar pattern: ``corpus.input_pattern``.
    :ivar patience: how long runs and TPUs may be stalled.
    :ivar with_text: whether alerts may quote log lines.
    """

    owner: str
    overdue: timedelta
    quiet: timedelta
    pattern: str
    patience: Patience
    with_text: bool = False


@dataclass
class WatchReport(Findings):
    """The findings of a pass."""

    open_runs: int = 0


@dataclass
class Watch:
    """A watch of a store.

    :param state_of: asks Airflow for a run's state; may raise any exception when it cannot.
    :param cleared_of: asks Airflow how often an ended run was cleared; may raise as well.
    :param failed_tasks_of: asks Airflow which tasks of an ended run have failed; may raise as well.
    :param link_of: returns the run's own page.
    :param answer_link_of: returns the page on which the run's question is answered.
    :param is_paused: asks Airflow whether a DAG is paused; may raise as well.
    :param tpu_of: asks the TPU service.
    """

    store: StoreLayout
    settings: WatchSettings
    state_of: StateOf
    cleared_of: ClearedOf
    failed_tasks_of: FailedTasksOf
    link_of: LinkOf
    answer_link_of: LinkOf
    is_paused: Callable[[str], bool]
    tpu_of: TpuOf

    def look(self) -> WatchReport:
        """Make a pass. A check that fails is reported and does not stop the others."""
        report = WatchReport()
        losses: dict[str, int] = {}
        listed = list_runs(self.store)
        unseen = set(listed.all)
        for key in listed.open:
            report.open_runs += 1
            with report.collected(f"run {key}"):
                losses[key] = self._look_at(key, report)
                unseen.remove(key)
        for key in listed.renting:
            with report.collected(f"run {key}"):
                run = self.store.run(key)
                self._look_at_left(run, RunRecord.load(run.record), report)
                unseen.remove(key)
        for uri in uris.list_files(self.store.backfills):
            with report.collected(f"backfill {uri}"):
                backfill = BackfillRuns.load(uri)
                if backfill.ended is None:
                    report.add(check_backfill(self.store, backfill, self.state_of))
        with report.collected("TPU losses"):
            self._check_storm(losses, report)
        since = _unbroken_since(self.store)
        with report.collected("the reaper's sign of life"):
            report.add(check_reaper(self.store, self.settings.owner, since))
        with report.collected("the store's identity"):
            report.add(check_identity(self.store))
        with report.collected("the corpus"):
            report.add(check_corpus(self.store, self.settings.pattern, self.settings.quiet))
        with report.collected("alerts that have cleared"):
            report.clear(self.store, CLEARING, unseen)
        WatchPass(
            unbroken_since=since,
            finished=datetime.now(UTC),
            host=socket.gethostname(),
            open_runs=report.open_runs,
            problems=report.problems,
        ).write(self.store.watch_pass)
        return report

    def _look_at(self, key: str, report: WatchReport) -> int:
        """Check a run; return how many TPUs it has lost lately, see :func:`recent`."""
        run = self.store.run(key)
        outcome = RunOutcome.load_or_none(run.outcome)
        record = RunRecord.load(run.record)
        if record.rental_of is not None:
            return self._look_at_rental(run, record, self.store.run(record.rental_of), report)
        if outcome is None:
            state = self.state_of(record.dag_id, record.run_id)
            if state is not None and state not in ENDED_STATES:
                lost = self._look_at_running(run, record, report)
                self._look_at_standstill(run, record, report)
                return lost
            outcome, goes_on = self._record_end(run, record, state, report), False
        else:
            goes_on = self._goes_on(record, outcome)
        # Before the run counts as processed, so that later passes still check its TPUs.
        RentingRun(time=datetime.now(UTC)).create(self.store.renting_run(key))
        if not goes_on:
            self._conclude(run, record, outcome, report)
        self._look_at_left(run, record, report)
        return 0

    def _goes_on(self, record: RunRecord, outcome: RunOutcome) -> bool:
        """Return whether a failed run was cleared and goes on, though no task reopened it yet."""
        if not outcome.outcome.is_failure:
            return False
        state = self.state_of(record.dag_id, record.run_id)
        return state is not None and state not in ENDED_STATES

    def _look_at_left(self, run: RunLayout, record: RunRecord, report: WatchReport) -> None:
        """Check the TPUs of a run that has ended, and forget the run once they are gone."""
        found = OpenRun.read(self.store, run, record)
        if not found.may_rent(self.tpu_of):
            uris.delete(self.store.renting_run(record.run_key))
            return
        for finding in found.unused(self.settings.patience, self.tpu_of):
            self._raise(record, finding, report)
        self._look_at_pause(found, record, report)

    def _look_at_rental(
        self, rental: RunLayout, record: RunRecord, run: RunLayout, report: WatchReport
    ) -> int:
        """Check the folder of a run's further TPU; it gets the same outcome as the run."""
        outcome = RunOutcome.load_or_none(run.outcome)
        if outcome is None:
            self._look_at_running(rental, record, report)
            return 0  # the run's own check counts the losses of all of its TPUs
        outcomes.record_if_none(rental, outcome.outcome, outcome.reason, written_by=WRITER)
        watched = WatchedRun(outcome=outcome.outcome, time=datetime.now(UTC))
        watched.write(self.store.watched_run(record.run_key))
        return 0

    def _look_at_running(self, run: RunLayout, record: RunRecord, report: WatchReport) -> int:
        running = RunningRun.read(run, record)
        for finding in running.findings(self.settings.overdue):
            self._raise(record, finding, report)
        return recent(running.losses())

    def _look_at_standstill(self, run: RunLayout, record: RunRecord, report: WatchReport) -> None:
        """Check whether a run or one of its TPUs has been stalled for too long."""
        found = OpenRun.read(self.store, run, record)
        for finding in found.findings(self.settings.patience, self.tpu_of):
            self._raise(record, finding, report)
        self._look_at_pause(found, record, report)

    def _look_at_pause(self, found: OpenRun, record: RunRecord, report: WatchReport) -> None:
        if any(mailbox.is_rented for mailbox in found.mailboxes) and self.is_paused(record.dag_id):
            pause = found.paused(record.dag_id, self._pause(record.run_key))
            if pause is not None:
                self._raise(record, pause, report)

    def _pause(self, run_key: str) -> str:
        """Return the id of the pause: that of its alert that has not cleared, or a new one."""
        told = open_alerts(self.store, (Cause.PAUSED_WITH_TPU,))
        known = [name.partition(".")[2] for scope, name in told if scope == run_key]
        return known[0] if known else f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"

    def _record_end(
        self, run: RunLayout, record: RunRecord, state: str | None, report: WatchReport
    ) -> RunOutcome:
        """Write the outcome of a run that ended without one.

        The alert comes first: if the watch dies in between, the next pass finds the run unchanged.
        """
        lineage = self.store.lineage(record.lineage_id)
        promoted = outcomes.record_if_in_use(run, lineage, record.run_key, written_by=WRITER)
        if promoted is not None:
            return promoted
        said = f"ended as {state!r}" if state is not None else "was deleted"
        ended = self._ended(record)
        is_known = has_failure_alert(self.store, ended)
        if is_known:
            told = failure_reasons(self.store, ended)
            reason = " ".join(told) or f"The run {said} in Airflow; its alerts say why."
        else:
            reason = f"The run {said} in Airflow and has no outcome. {NOBODY_REPORTED}"
            summary = "ended by a person or a crash"
            silent = Finding(Cause.ENDED_WITHOUT_OUTCOME, summary, reason)
            self._raise(record, silent, report, ended)
        kind = OutcomeKind.FAILED if is_known else OutcomeKind.CANCELLED
        written = outcomes.record_if_none(run, kind, reason, written_by=WRITER)
        return written or RunOutcome.load(run.outcome)

    def _conclude(
        self, run: RunLayout, record: RunRecord, outcome: RunOutcome, report: WatchReport
    ) -> None:
        """Raise alerts about the outcome, and record that the run is processed."""
        if record.partition:
            lineage = self.store.lineage(record.lineage_id)
            attempt = attempts.record(lineage, run, record, outcome)
            for finding in _quarantines(lineage, attempt):
                self._raise(record, finding, report)
        if outcome.outcome is OutcomeKind.REJECTED:
            rejection = Finding(Cause.REJECTED, _rejection(run), outcome.reason)
            self._raise(record, rejection, report, self._ended(record))
        if outcome.outcome.is_failure:
            ended = self._ended(record)
            if not has_failure_alert(self.store, ended):
                reason = f"Recorded by {outcome.written_by}: {outcome.reason}. {NOBODY_REPORTED}"
                failure = Finding(Cause.RUN_FAILED, f"run {outcome.outcome}", reason)
                self._raise(record, failure, report, ended)
        watched = WatchedRun(outcome=outcome.outcome, time=datetime.now(UTC))
        watched.write(self.store.watched_run(record.run_key))

    def _check_storm(self, losses: dict[str, int], report: WatchReport) -> None:
        """Raise an alert when several runs together lose many TPUs, at most once a day."""
        hit = {key: count for key, count in losses.items() if count}
        if len(hit) < 2 or sum(hit.values()) < STORM_LOSSES:
            return
        runs = ", ".join(f"run {key}: {count}" for key, count in sorted(hit.items()))
        alert = raise_about_installation(
            self.store,
            f"preemptions-{datetime.now(UTC):%Y-%m-%d}",
            Cause.PREEMPTION_STORM,
            about="all runs",
            summary=f"{sum(hit.values())} TPUs lost within an hour",
            reason=f"Several runs lost TPUs within the last hour: {runs}.",
        )
        report.add(alert)

    def _raise(
        self,
        record: RunRecord,
        finding: Finding,
        report: WatchReport,
        ended: AlertedRun | None = None,
    ) -> None:
        """Raise an alert about a run unless there is one.

        :param ended: the run as :meth:`_ended` returned it, for causes that say how it ended.
        """
        page = self.answer_link_of if finding.cause is Cause.APPROVAL_WAITING else self.link_of
        link = page(record.dag_id, record.run_id)
        run = replace(ended or AlertedRun(record.dag_id, record.run_id), link=link)
        report.tell(self.store, run, finding, with_text=self.settings.with_text)

    def _ended(self, record: RunRecord) -> AlertedRun:
        """Return an ended run for alerts; it gets new alerts each time a person has cleared it."""
        name = record.dag_id, record.run_id
        cleared = self.cleared_of(*name)
        # Airflow knows no tasks of a run that was deleted.
        failed = () if cleared is None else tuple(self.failed_tasks_of(*name))
        return AlertedRun(*name, times_cleared=cleared, failed_tasks=failed)


def _unbroken_since(store: StoreLayout) -> datetime:
    now = datetime.now(UTC)
    try:
        last = WatchPass.load_or_none(store.watch_pass)
    except FormatError:
        last = None  # a damaged file is replaced
    return last.unbroken_since if last and now - last.finished <= MAX_GAP else now


def _quarantines(lineage: LineageLayout, attempt: LineageAttempt | None) -> Iterator[Finding]:
    """Yield a finding for each partition that a rejected run has put into quarantine."""
    if attempt is None or not attempt.by_gate:
        return
    for partition, tried in attempts.left_out(lineage).items():
        if tried.is_quarantined and partition in attempt.trained:
            reasons = "; ".join(tried.rejections)
            yield Finding(
                Cause.QUARANTINED,
                f"partition {partition} is in quarantine",
                f"Updates with partition {partition} were rejected {len(tried.rejections)} times: "
                f"{reasons}. The next update runs without it.",
                detail=partition,
            )


def _rejection(run: RunLayout) -> str:
    """Return a summary of a rejection, with the verdict if the gate rejected the candidate."""
    for uri in uris.list_files(run.verdicts):
        verdict = Verdict.load(uri).verdict
        if verdict is not VerdictKind.PROMOTED:
            return f"candidate {verdict}"
    return "candidate rejected"
