"""Watches one attempt until its TPU is ready or its job ends: mailbox and TPU service together.

Synchronous; a trigger calls it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pipeline_config.accelerators import hosts
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, Heartbeat, JobPhase, Progress
from tpu_lifecycle.control.mailbox import (
    LeaseKeeper,
    LogReader,
    WorkerReport,
    of_all,
    read_status,
    read_worker,
)
from tpu_lifecycle.control.verdict import Facts, Standing, Verdict, judge_job, judge_readiness
from tpu_lifecycle.records.attempts import AttemptRecord, read_heartbeat
from tpu_lifecycle.records.budgets import chip_count, chip_hours_end
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.service.backend import (
    TpuBackend,
    TpuError,
    TpuName,
    TpuState,
    TpuUnavailableError,
)

RECAP_LINES = 20

MAX_LOOK_GAPS = 3
"""Poll intervals between two looks beyond which looking must have failed in between."""


@dataclass(frozen=True)
class Observation:
    """One look: the verdict, and what there is to show meanwhile."""

    verdict: Verdict
    tpu: TpuState | None = None
    progress: Progress | None = None
    log_lines: tuple[str, ...] = ()


@dataclass
class Sight:
    """Looks at a TPU. That a part of it is not there counts when two looks in a row say so."""

    backend: TpuBackend
    name: TpuName
    _is_in_doubt: bool = False

    def look(self) -> TpuState | None:
        """Return what the service says; None when that is nothing, or not to be relied on yet.

        :raises TpuError: it cannot be asked, for a reason that does not pass by itself.
        """
        try:
            state = self.backend.describe(self.name)
        except TpuUnavailableError:
            return None
        was_in_doubt, self._is_in_doubt = self._is_in_doubt, state.lacks_parts
        return None if state.lacks_parts and not was_in_doubt else state


@dataclass
class ReadyWatch:
    """Watches a TPU that was asked for until it is READY or will not come."""

    backend: TpuBackend
    reservation: OpenReservation
    record: AttemptRecord
    deadline: datetime

    def __post_init__(self) -> None:
        """Take the lease."""
        self.lease = _lease(self.reservation, self.record)
        self.sight = Sight(self.backend, self.record.name)

    def look(self) -> Observation:
        """Look once, and renew the lease.

        :raises TpuError: the service cannot be asked, for a reason that does not pass by itself.
        """
        released = _renew(self.reservation, self.lease)
        tpu = self.sight.look()
        if tpu is not None and not tpu.exists:
            tpu = replace(tpu, fault=self._creation_error())
        self.record = _mark_ready(self.reservation, self.record, tpu)
        facts = Facts(
            now=datetime.now(UTC),
            deadline=self.deadline,
            released=released,
            tpu=tpu,
            asked=self.record.asked,
        )
        return Observation(judge_readiness(facts), tpu)

    def _creation_error(self) -> TpuError | None:
        answer = self.record.marks.get(AttemptEvent.ANSWERED)
        if not answer or not answer.operation:
            return None
        return self.backend.creation_error(answer.operation, chip_count(self.reservation.record))


@dataclass
class _Stand:
    """For how long a job did not move. Time counts when the next heartbeat is there."""

    beat: Heartbeat
    seconds: float = 0.0
    uncounted: float = 0.0

    def see(self, beat: Heartbeat, watched: float) -> None:
        self.uncounted += watched
        if beat.time != self.beat.time:
            self.seconds += self.uncounted
            self.beat, self.uncounted = beat, 0.0


@dataclass
class JobWatch:
    """Watches a job until it ended on all workers or cannot end any more."""

    backend: TpuBackend
    reservation: OpenReservation
    record: AttemptRecord
    job_id: str
    deadline: datetime
    log: LogReader
    _silences: dict[int, tuple[datetime | None, float]] = field(default_factory=dict)
    _stands: dict[int, _Stand] = field(default_factory=dict)
    _last_look: float | None = None
    _budget_ends: tuple[datetime | None] | None = None

    def __post_init__(self) -> None:
        """Take the lease."""
        self.lease = _lease(self.reservation, self.record)
        self.sight = Sight(self.backend, self.record.name)

    def look(self) -> Observation:
        """Look once, and renew the lease.

        :raises TpuError: the service cannot be asked, for a reason that does not pass by itself.
        """
        released = _renew(self.reservation, self.lease)
        tpu = self.sight.look()
        self.record = _mark_ready(self.reservation, self.record, tpu)
        ready = self.record.marks.get(AttemptEvent.READY)
        reports = of_all(range(self.record.workers), partial(read_worker, self.record, self.job_id))
        config, watched = self.reservation.config.tpu, self._watched()
        facts = Facts(
            now=datetime.now(UTC),
            deadline=self.deadline,
            released=released,
            tpu=tpu,
            ready=ready,
            budget_end=self._budget_end(),
            hellos=frozenset(w for w, report in reports.items() if report.hello),
            silence=self._silence(reports, watched),
            standing=self._standing(reports, watched),
            statuses={w: report.status for w, report in reports.items() if report.status},
            boot_timeout=config.boot_timeout_seconds,
            heartbeat_timeout=config.heartbeat_timeout_seconds,
        )
        return Observation(
            judge_job(facts), tpu, self._progress(reports[0]), tuple(self.log.read(reports[0]))
        )

    def _budget_end(self) -> datetime | None:
        if self.reservation.config.budget.chip_hours_limit is None or not self.record.is_ready:
            return None
        if self._budget_ends is None:
            # Once: it stays the same, and all attempts have to be read for it.
            attempts = self.reservation.attempts()
            self._budget_ends = (chip_hours_end(self.reservation, attempts, self.record),)
        return self._budget_ends[0]

    def _silence(self, reports: dict[int, WorkerReport], watched: float) -> dict[int, float]:
        """Return how long each worker that has said hello gave no new sign while we looked.

        A store that was away for us was probably away for the workers too: time in which no look
        succeeded is not held against them.
        """
        for worker, report in reports.items():
            if report.hello:
                sign = report.heartbeat.time if report.heartbeat else None
                before, silence = self._silences.get(worker, (sign, 0.0))
                self._silences[worker] = (sign, silence + watched if sign == before else 0.0)
        return {worker: silence for worker, (_, silence) in self._silences.items()}

    def _standing(self, reports: dict[int, WorkerReport], watched: float) -> dict[int, Standing]:
        """Return how the job stands on each worker whose agent says what it does.

        As of silence, only time counts in which we looked and the agent went on beating. An agent
        whose heartbeat, a thread of its own, says nothing of the job may hang between two jobs: it
        has as long to begin as a phase without a limit of its own, from our first look on, and
        anew whenever another job moves.
        """
        for worker, report in reports.items():
            beat = report.heartbeat
            if beat is None or report.status:
                self._stands.pop(worker, None)
            elif worker not in self._stands or _place(self._stands[worker].beat) != _place(beat):
                self._stands[worker] = _Stand(beat)
            else:
                self._stands[worker].see(beat, watched)
        found = {}
        for worker, stand in self._stands.items():
            phase, limit = stand.beat.phase, stand.beat.phase_limit_seconds
            if stand.beat.job_id != self.job_id:
                limit = self.reservation.config.hang.other_seconds
                found[worker] = Standing(None, stand.seconds, limit)
            elif phase is not None and limit is not None:
                found[worker] = Standing(phase.name, stand.seconds, limit)
        return found

    def _watched(self) -> float:
        """Return for how long we have looked since the last look that succeeded."""
        now, before = time.monotonic(), self._last_look
        self._last_look = now
        usual = MAX_LOOK_GAPS * self.reservation.config.tpu.poll_interval
        return min(now - before, usual) if before is not None else 0.0

    def _progress(self, report: WorkerReport) -> Progress | None:
        beat = report.heartbeat
        return beat.progress if beat is not None and beat.job_id == self.job_id else None


def _place(beat: Heartbeat) -> tuple[str | None, JobPhase | None]:
    return beat.job_id, beat.phase


def reported(reservation: OpenReservation, record: AttemptRecord, job_id: str) -> Verdict:
    """Return what a job's own reports alone say of it; asks no TPU service."""
    statuses = of_all(range(record.workers), partial(read_status, record, job_id))
    return judge_job(
        Facts(
            now=datetime.now(UTC),
            deadline=reservation.wait_deadline,
            released=reservation.is_released(),
            ready=record.marks.get(AttemptEvent.READY),
            statuses={worker: status for worker, status in statuses.items() if status},
        )
    )


def recap(record: AttemptRecord, job_id: str) -> list[str]:
    """Return how far a job came on an attempt: progress, last lines, and where its log is.

    Airflow keeps, of all waits of one try of a task, only the last one's log lines.
    """
    lines = []
    beat = read_heartbeat(record, 0)
    if beat is not None and beat.job_id == job_id:
        lines += [progress_text(beat.progress)] if beat.progress else []
        if beat.log_chunks:
            chunk = uris.read_or_none(record.layout.log_chunk(0, job_id, beat.log_chunks - 1))
            lines += (chunk or b"").decode(errors="replace").splitlines()[-RECAP_LINES:]
    return [*lines, f"whole log: {record.layout.log(0, job_id)}"]


def progress_text(progress: Progress) -> str:
    """Return a line such as ``step 120/400 (30%), loss 5.123, 3,400 tokens/s, 0:02:10 left``."""
    share = progress.step / progress.train_steps if progress.train_steps else 0.0
    parts = [f"step {progress.step}/{progress.train_steps} ({share:.0%})"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.3f}")
    if progress.held_out_loss is not None:
        parts.append(f"held-out loss {progress.held_out_loss:.3f}")
    if progress.tokens_per_second is not None:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.eta_seconds is not None:
        minutes, seconds = divmod(int(progress.eta_seconds), 60)
        parts.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
    if progress.checkpoint_step is not None:
        parts.append(f"checkpoint at step {progress.checkpoint_step}")
    return ", ".join(parts)


def _lease(reservation: OpenReservation, record: AttemptRecord) -> LeaseKeeper:
    return LeaseKeeper(record, reservation.config.tpu.lease_timeout_seconds)


def _renew(reservation: OpenReservation, lease: LeaseKeeper) -> bool:
    """Renew the lease unless the reservation was released; return whether it was."""
    released = reservation.is_released()
    if not released:
        lease.renew()
    return released


def _mark_ready(
    reservation: OpenReservation, record: AttemptRecord, tpu: TpuState | None
) -> AttemptRecord:
    if AttemptEvent.READY in record.marks or tpu is None or not tpu.is_ready:
        return record
    # The service may name the hosts one after the other, and this is written once.
    known = hosts(reservation.record.accelerator_type) * reservation.record.slice_count
    workers = max(tpu.workers, known)
    return record.mark(AttemptEvent.READY, workers=workers, node_created=tpu.node_created)
