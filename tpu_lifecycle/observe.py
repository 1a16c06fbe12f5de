"""Looks at one attempt: mailbox and TPU service together. Synchronous; a trigger calls it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, Progress
from tpu_lifecycle.attempts import AttemptRecord
from tpu_lifecycle.backend import TpuBackend, TpuState, TpuUnavailableError
from tpu_lifecycle.mailbox import LogReader, WorkerReport, read_worker
from tpu_lifecycle.reservation import OpenReservation
from tpu_lifecycle.verdict import Facts, Verdict, judge_job, judge_readiness

RECAP_LINES = 20


@dataclass(frozen=True)
class Observation:
    """One look: the verdict, and what there is to show meanwhile."""

    verdict: Verdict
    tpu: TpuState | None = None
    progress: Progress | None = None
    log_lines: tuple[str, ...] = ()


@dataclass
class ReadyWatch:
    """Watches a TPU that was asked for until it is READY or will not come."""

    backend: TpuBackend
    reservation: OpenReservation
    record: AttemptRecord
    deadline: datetime

    def look(self) -> Observation:
        """Look once.

        :raises TpuError: the service cannot be asked, for a reason that does not pass by itself.
        """
        tpu = _describe(self.backend, self.record)
        self.record = _mark_ready(self.record, tpu)
        facts = Facts(
            now=datetime.now(UTC),
            deadline=self.deadline,
            released=self.reservation.is_released(),
            tpu=tpu,
            asked=self.record.asked,
        )
        return Observation(judge_readiness(facts), tpu)


@dataclass
class JobWatch:
    """Watches a job until it ended on all workers or cannot end any more."""

    backend: TpuBackend
    reservation: OpenReservation
    record: AttemptRecord
    job_id: str
    deadline: datetime
    log: LogReader
    _last_signs: dict[int, tuple[datetime | None, float]] = field(default_factory=dict)

    def look(self) -> Observation:
        """Look once.

        :raises TpuError: the service cannot be asked, for a reason that does not pass by itself.
        """
        tpu = _describe(self.backend, self.record)
        self.record = _mark_ready(self.record, tpu)
        ready = self.record.marks.get(AttemptEvent.READY)
        workers = range((ready.workers or 1) if ready else 1)
        reports = {worker: read_worker(self.record, worker, self.job_id) for worker in workers}
        config = self.reservation.config.tpu
        facts = Facts(
            now=datetime.now(UTC),
            deadline=self.deadline,
            released=self.reservation.is_released(),
            tpu=tpu,
            ready=ready,
            hellos=frozenset(w for w, report in reports.items() if report.hello),
            silence=self._silence(reports),
            statuses={w: report.status for w, report in reports.items() if report.status},
            boot_timeout=config.boot_timeout_seconds,
            heartbeat_timeout=config.heartbeat_timeout_seconds,
        )
        return Observation(
            judge_job(facts), tpu, self._progress(reports[0]), tuple(self.log.read(reports[0]))
        )

    def _silence(self, reports: dict[int, WorkerReport]) -> dict[int, float]:
        now = time.monotonic()
        for worker, report in reports.items():
            if report.hello:
                sign = report.heartbeat.time if report.heartbeat else None
                if worker not in self._last_signs or self._last_signs[worker][0] != sign:
                    self._last_signs[worker] = (sign, now)
        return {worker: now - seen for worker, (_, seen) in self._last_signs.items()}

    def _progress(self, report: WorkerReport) -> Progress | None:
        beat = report.heartbeat
        return beat.progress if beat is not None and beat.job_id == self.job_id else None


def recap(record: AttemptRecord, job_id: str) -> list[str]:
    """Return how far a job came on an attempt: progress, last lines, and where its log is.

    Airflow keeps, of all waits of one try of a task, only the last one's log lines.
    """
    lines = []
    beat = read_worker(record, 0, job_id).heartbeat
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


def _describe(backend: TpuBackend, record: AttemptRecord) -> TpuState | None:
    try:
        return backend.describe(record.name)
    except TpuUnavailableError:
        return None


def _mark_ready(record: AttemptRecord, tpu: TpuState | None) -> AttemptRecord:
    if AttemptEvent.READY in record.marks or tpu is None or not tpu.is_ready:
        return record
    return record.mark(
        AttemptEvent.READY, workers=max(tpu.workers, 1), node_created=tpu.node_created
    )
