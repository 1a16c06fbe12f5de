"""The orchestrator's side of an attempt's mailbox: submits jobs and reads the agents' reports.

The mailbox also holds the TPU's lease: a sign that a process that would release the TPU is still
watching. A TPU VM whose lease is not renewed for ``tpu.lease_timeout_seconds``, and whose job makes
no progress, deletes its own TPU. It watches for changes of the file, timed by its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from pipeline_config.rental_schema import RentalConfig
from pipeline_store import job_signatures, uris
from pipeline_store.formats import (
    AgentHello,
    FormatError,
    HangReport,
    Heartbeat,
    JobLimits,
    JobSpec,
    JobStatus,
    Lease,
    LogCursor,
    PhaseName,
)
from pipeline_store.layout import AttemptLayout
from tpu_lifecycle.records.attempts import AttemptRecord, read_heartbeat
from tpu_lifecycle.records.budgets import job_deadline
from tpu_lifecycle.records.reservation import OpenReservation, ReservationError

Found = TypeVar("Found")

MAX_CHUNKS_PER_LOOK = 16

READERS = 16
"""Threads of one poll; more would only wait for each other's connections to the store."""

MAX_CHUNKS_AT_END = 16
"""Chunks shown of a log that is still unread when its job has ended: the last ones."""
MAX_INTERVAL_SECONDS = 30.0
RENEWALS_PER_TIMEOUT = 10


def submit_job(
    reservation: OpenReservation,
    record: AttemptRecord,
    *,
    job_id: str,
    entry_point: str,
    arguments: Sequence[str],
) -> bool:
    """Submit a signed job to the attempt's mailbox; return False when it is already there.

    The budgets set the job's deadline, at which the agent stops it with a checkpoint.

    :raises ReservationError: a different job with this id is already there.
    """
    spec = JobSpec(
        job_id=job_id,
        token=record.attempt.token,
        holder_uri=reservation.run.holder,
        entry_point=entry_point,
        arguments=list(arguments),
        bundle_sha256=reservation.record.bundle_sha256,
        max_restarts=reservation.config.budget.max_failures,
        deadline=job_deadline(reservation, reservation.attempts(), record),
    )
    # Limits and signature before the job: agents may start it at once.
    _limits(reservation.config, record.workers).create(record.layout.limits(job_id))
    if key := reservation.job_key:
        job_signatures.sign(record.layout, job_id, spec.to_bytes(), key)
    uri = record.layout.job(job_id)
    if spec.create(uri):
        return True
    present = JobSpec.load(uri)
    if present != spec.model_copy(update={"deadline": present.deadline}):
        raise ReservationError(
            f"{uri} holds a different job already. Give every job of a TPU an id of its own, and "
            "clear the reserve task to run a changed job."
        )
    return False


def _limits(config: RentalConfig, workers: int) -> JobLimits:
    hang = config.hang
    seconds = {
        PhaseName.OTHER: hang.other_seconds,
        PhaseName.DATA: hang.data_seconds,
        PhaseName.RESTORE: hang.restore_seconds,
        PhaseName.FIRST_LOOP: hang.first_loop_seconds,
        PhaseName.SAVE: hang.save_seconds,
        PhaseName.EVALUATION: hang.evaluation_seconds,
    }
    # The host that the others wait for is in one of these; its own agent detects its hang.
    seconds[PhaseName.MEETING] = max(*seconds.values(), hang.loop_floor_seconds)
    return JobLimits(
        max_hangs=config.budget.max_hangs,
        workers=workers,
        loop_floor_seconds=hang.loop_floor_seconds,
        phase_seconds=seconds,
    )


@dataclass(frozen=True)
class WorkerReport:
    """One agent's reports about itself and a job; only those with the attempt's token."""

    hello: bool
    heartbeat: Heartbeat | None
    status: JobStatus | None


def of_all(workers: Sequence[int], read: Callable[[int], Found]) -> dict[int, Found]:
    """Read something of many workers in parallel: sequentially, the files of 64 take seconds."""
    if len(workers) == 1:
        return {worker: read(worker) for worker in workers}
    with ThreadPoolExecutor(min(READERS, len(workers))) as pool:
        return dict(zip(workers, pool.map(read, workers), strict=True))


def read_worker(record: AttemptRecord, job_id: str, worker: int) -> WorkerReport:
    """Read one worker's files.

    A file that carries another attempt's token was written by an orphan and counts as absent.

    :raises FormatError: hello or status are damaged.
    """
    layout, token = record.layout, record.attempt.token
    heartbeat = read_heartbeat(record, worker)
    hello = None if heartbeat else AgentHello.load_or_none(layout.hello(worker))
    return WorkerReport(
        hello=bool(heartbeat or (hello and hello.token == token)),
        heartbeat=heartbeat,
        status=read_status(record, job_id, worker),
    )


def read_status(record: AttemptRecord, job_id: str, worker: int) -> JobStatus | None:
    """Return how a job ended on a worker, or None if it has not.

    :raises FormatError: the status file is damaged.
    """
    status = JobStatus.load_or_none(record.layout.status(worker, job_id))
    return status if status and status.token == record.attempt.token else None


def read_hangs(record: AttemptRecord) -> list[list[HangReport]]:
    """Return the workers' reports of each hang of an attempt's jobs, one list per hang.

    :raises FormatError: a report is damaged.
    """
    found: dict[tuple[str, int], list[HangReport]] = {}
    for uri in uris.list_files(record.layout.hangs):
        report = HangReport.load(uri)
        if report.token == record.attempt.token:
            found.setdefault((report.job_id, report.number), []).append(report)
    return [sorted(found[key], key=lambda one: one.worker) for key in sorted(found)]


class LogReader:
    """Reader of a job's log on worker 0, which reads each chunk once, even across restarts.

    :param viewer: name of the reader, such as a task's try; each has its own position in the log.
    """

    def __init__(self, layout: AttemptLayout, job_id: str, viewer: str) -> None:
        self._layout = layout
        self._job_id = job_id
        self._cursor_uri = layout.log_cursor(job_id, viewer)
        self._position: int | None = None
        self._saved = 0

    def read(self, report: WorkerReport) -> list[str]:
        """Return the new lines; the next call records them as shown."""
        position = self._note_shown()
        last = self._available(report)
        lines: list[str] = []
        if report.status is None:
            last = min(last, position + MAX_CHUNKS_PER_LOOK)
        elif (left_out := last - position - MAX_CHUNKS_AT_END) > 0:
            where = self._layout.log(0, self._job_id)
            lines.append(f"[{left_out} part(s) of the log are left out here; whole log: {where}]")
            position += left_out
        while position < last:
            chunk = uris.read_or_none(self._layout.log_chunk(0, self._job_id, position))
            if chunk is None:
                break
            lines += chunk.decode(errors="replace").splitlines()
            position += 1
        self._position = position
        return lines

    def _note_shown(self) -> int:
        if self._position is None:
            cursor = LogCursor.load_or_none(self._cursor_uri)
            self._position = self._saved = cursor.chunks if cursor else 0
        elif self._position > self._saved:
            LogCursor(chunks=self._position).write(self._cursor_uri)
            self._saved = self._position
        return self._position

    def _available(self, report: WorkerReport) -> int:
        if report.status is not None:
            return report.status.log_chunks
        beat = report.heartbeat
        return beat.log_chunks if beat is not None and beat.job_id == self._job_id else 0


@dataclass
class LeaseKeeper:
    """The renewal of one attempt's lease, at most once per interval, however often it is called.

    Two keepers may renew the same lease for a while, an old trigger and a new one: the file still
    changes, and readers rely on nothing else.

    :param timeout: ``tpu.lease_timeout_seconds``.
    """

    record: AttemptRecord
    timeout: float
    _sequence: int | None = field(default=None, init=False)
    _renewed: float = field(default=0.0, init=False)

    def renew(self) -> None:
        """Renew the lease unless that was done a moment ago."""
        now = time.monotonic()
        interval = min(MAX_INTERVAL_SECONDS, self.timeout / RENEWALS_PER_TIMEOUT)
        if self._sequence is not None and now - self._renewed < interval:
            return
        uri = self.record.layout.lease
        if self._sequence is None:
            self._sequence = _present(uri)
        self._sequence += 1
        Lease(
            token=self.record.attempt.token, sequence=self._sequence, renewed=datetime.now(UTC)
        ).write(uri)
        self._renewed = now


def _present(uri: str) -> int:
    try:
        found = Lease.load_or_none(uri)
    except FormatError:
        return 0  # what counts is that the file changes
    return found.sequence if found else 0
