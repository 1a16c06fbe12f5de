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
"""A longer gap between two polls, in poll intervals, means that polls in between failed."""


@dataclass(frozen=True)
class Observation:
    """Result of one poll: the verdict, and what to show meanwhile."""

    verdict: Verdict
    tpu: TpuState | None = None
    progress: Progress | None = None
    log_lines: tuple[str, ...] = ()


@dataclass
class Sight:
    """View of a TPU in which a missing part counts only when two polls in a row report it."""

    backend: TpuBackend
    name: TpuName
    _is_in_doubt: bool = False

    def look(self) -> TpuState | None:
        """Return the TPU's state; None when there is no answer, or one that must be confirmed.

        :raises TpuError: the service fails for a reason other than being unavailable.
        """
        try:
            state = self.backend.describe(self.name)
        except TpuUnavailableError:
            return None
        was_in_doubt, self._is_in_doubt = self._is_in_doubt, state.lacks_parts
        return None if state.lacks_parts and not was_in_doubt else state


@dataclass
class ReadyWatch:
    """Watches a requested TPU until it is READY or cannot come any more."""

    backend: TpuBackend
    reservation: OpenReservation
    record: AttemptRecord
    deadline: datetime

    def __post_init__(self) -> None:
        """Prepare the renewal of the lease and the view of the TPU."""
        self.lease = _lease(self.reservation, self.record)
        self.sight = Sight(self.backend, self.record.name)

    def look(self) -> Observation:
        """Poll once, and renew the lease.

        :raises TpuError: the service fails for a reason other than being unavailable.
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
    """Seconds for which a job did not move; they count once the next heartbeat arrives."""

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
    """Watches a job until it has ended on all workers or cannot end any more."""

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
        """Prepare the renewal of the lease and the view of the TPU."""
        self.lease = _lease(self.reservation, self.record)
        self.sight = Sight(self.backend, self.record.name)

    def look(self) -> Observation:
        """Poll once, and renew the lease.

        :raises TpuError: the service fails for a reason other than being unavailable.
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
            # Computed once: it does not change, and needs all attempts to be read.
            attempts = self.reservation.attempts()
            self._budget_ends = (chip_hours_end(self.reservation, attempts, self.record),)
        return self._budget_ends[0]

    def _silence(self, reports: dict[int, WorkerReport], watched: float) -> dict[int, float]:
        """Return for how many polled seconds each worker that said hello sent no new heartbeat.

        A store that we could not reach was probably unreachable for the workers too: time in which
        no poll succeeded does not count.
        """
        for worker, report in reports.items():
            if report.hello:
                sign = report.heartbeat.time if report.heartbeat else None
                before, silence = self._silences.get(worker, (sign, 0.0))
                self._silences[worker] = (sign, silence + watched if sign == before else 0.0)
        return {worker: silence for worker, (_, silence) in self._silences.items()}

    def _standing(self, reports: dict[int, WorkerReport], watched: float) -> dict[int, Standing]:
        """Return how long the job has not moved, for each worker whose agent reports its activity.

        As with silence, only time counts in which we polled and the agent kept sending heartbeats.
        An agent whose heartbeat, a separate thread, reports nothing of this job may hang between
        two jobs: to start it has as long as a phase without its own limit, counted from our first
        poll, and again whenever another job moves.
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
        """Return the seconds since the last successful poll, up to ``MAX_LOOK_GAPS`` intervals."""
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
    """Return the verdict from a job's own reports alone, without asking the TPU service."""
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
    """Return how far a job got on an attempt: progress, last log lines, and the log's address.

    Of all waits in one try of a task, Airflow keeps only the last one's log lines.
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
    # The service may list the hosts one by one, and this mark is written only once.
    known = hosts(reservation.record.accelerator_type) * reservation.record.slice_count
    workers = max(tpu.workers, known)
    return record.mark(AttemptEvent.READY, workers=workers, node_created=tpu.node_created)
