"""Triggers that wait for a TPU to be READY and for a job on it to end, holding no worker slot."""

from __future__ import annotations

import asyncio
import random
import re
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from tpu_lifecycle.control.mailbox import LogReader
from tpu_lifecycle.control.observe import JobWatch, Observation, ReadyWatch, progress_text
from tpu_lifecycle.control.release import fenced_delete
from tpu_lifecycle.records.reservation import OpenReservation, open_reservation
from tpu_lifecycle.service.backend import TpuError, TpuPermissionError
from triggers.firing import SettledTrigger
from triggers.threads import PatientThreads

if TYPE_CHECKING:
    from hooks.tpu import TpuHook
    from tpu_lifecycle.records.attempts import AttemptRecord
    from tpu_lifecycle.service.backend import TpuBackend

MAX_ERRORS = 20
"""Consecutive polls that may fail for a permanent reason before the trigger fires with an error. If
the store or the service is unavailable, it keeps waiting: the job does not need the trigger."""

REOPEN_AFTER = 5
"""Consecutive polls without an answer from the service after which the connection is reopened: the
credentials may have been replaced."""

ERROR = "error"
"""Outcome of an event when polling itself failed; another try of the task goes on from there."""

PAUSED = "paused"
"""Outcome of a pause between two rounds through the zones; nothing was polled."""

_STEPS = re.compile(r"\bstep \d+/\d+ ")
"""Matches a line of a job's log that reports its progress."""

# Separate threads: with asyncio's few, hung polls of hundreds of triggers would keep cancellations
# waiting longer than Airflow does.
_LOOKS = PatientThreads(32, "tpu-look")
_KILLS = PatientThreads(8, "tpu-kill")


class _TpuTrigger(SettledTrigger):
    """Base of the triggers that poll an attempt until the wait is over.

    The event is a dictionary: ``outcome`` (:class:`tpu_lifecycle.control.verdict.Outcome` or
    ``error``), ``reason``, ``cause``, ``generation``, ``attempt``, ``holder_sequence``, and for a
    failed job ``exit_kind`` and ``worker``. It has all that the task needs to go on, because
    ``dag.test()`` passes on nothing else.

    :param run_uri: folder of the pipeline run.
    :param generation: reservation generation.
    :param attempt: number of the attempt to poll.
    :param deadline: epoch seconds after which the trigger fires by itself; earlier than the
        timeout of the deferral, which would leave nobody to stop the job.
    :param poll_interval: seconds between two polls.
    :param holder_sequence: see :func:`tpu_lifecycle.control.release.fenced_delete`.
    """

    def __init__(
        self,
        *,
        run_uri: str,
        generation: int,
        attempt: int,
        deadline: float,
        poll_interval: float,
        gcp_conn_id: str,
        impersonation_chain: str | Sequence[str] | None = None,
        holder_sequence: int | None = None,
    ) -> None:
        super().__init__()
        self.run_uri = run_uri
        self.generation = generation
        self.attempt = attempt
        self.deadline = deadline
        self.poll_interval = poll_interval
        self.gcp_conn_id = gcp_conn_id
        self.impersonation_chain = impersonation_chain
        self.holder_sequence = holder_sequence
        self._current_watch: ReadyWatch | JobWatch | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path that the triggerer imports, and the arguments."""
        return (
            f"triggers.tpu.{type(self).__name__}",
            {
                "run_uri": self.run_uri,
                "generation": self.generation,
                "attempt": self.attempt,
                "deadline": self.deadline,
                "poll_interval": self.poll_interval,
                "gcp_conn_id": self.gcp_conn_id,
                "impersonation_chain": self.impersonation_chain,
                "holder_sequence": self.holder_sequence,
            },
        )

    async def events(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is a final verdict, then fire once."""
        errors = blind = 0
        while True:
            try:
                # Logging is in the thread too: the end of a job's log may be long.
                seen = await _LOOKS.look(self.deadline, self._look)
            except Exception as error:  # noqa: BLE001 - whatever it is, the job goes on
                # CancelledError is no Exception: it passes, as on_kill needs it to.
                blind += 1
                errors = 0 if _may_pass(error) else errors + 1
                self.log.warning("Look %d in a row failed: %r", blind, error)
                if isinstance(error, TimeoutError):
                    self._close()  # its thread may still use what it has opened
                if errors >= MAX_ERRORS:
                    yield self._event(ERROR, f"{errors} looks in a row failed; last: {error!r}")
                    return
                if time.time() >= self.deadline:
                    # No verdict: the task has to check the TPU's state itself.
                    reason = f"the deadline passed while looking failed; last: {error!r}"
                    yield self._event(ERROR, reason)
                    return
            else:
                errors = 0
                blind = 0 if seen.tpu is not None else blind + 1
                if seen.verdict.is_final:
                    yield self._event(**seen.verdict.to_event())
                    return
            if blind and blind % REOPEN_AFTER == 0:
                self._close()
            # Jitter: a triggerer that starts begins all its triggers at the same moment.
            await asyncio.sleep(self.poll_interval * random.uniform(0.9, 1.1))  # noqa: S311

    async def on_kill(self) -> None:
        """Delete this task's own TPU: a person marked the task or cleared it.

        The teardown may have run already or may be running, and after a clear a newer try may
        already be using the TPU: the deletion is fenced and may happen twice.
        """
        deleted = await _KILLS.kill(self._kill)
        if deleted:
            self.log.warning("Task was ended by a person: deletion of its TPU asked for")
        else:
            self.log.info("Task was ended by a person: its TPU is gone or another task's")

    @abstractmethod
    def _watch(
        self, backend: TpuBackend, reservation: OpenReservation, record: AttemptRecord
    ) -> ReadyWatch | JobWatch:
        """Return the watch that polls the attempt."""

    @abstractmethod
    def _show(self, seen: Observation) -> None:
        """Write news about the attempt into the task's log."""

    def _look(self) -> Observation:
        if self._current_watch is None:
            reservation, record = self._open()
            backend = self._hook("task").backend(reservation.record.project_id)
            self._current_watch = self._watch(backend, reservation, record)
        seen = self._current_watch.look()
        self._show(seen)
        return seen

    def _close(self) -> None:
        """Make the next poll reopen the reservation and the connection."""
        from hooks.tpu import forget

        if self._current_watch is not None:
            forget(self._current_watch.backend)
            self._current_watch = None

    def _kill(self) -> bool:
        reservation, record = self._open()
        # Called once per trigger, perhaps weeks after the process began: use fresh credentials.
        backend = self._hook("on-kill").new_backend(reservation.record.project_id)
        try:
            return fenced_delete(backend, reservation, record, holder_sequence=self.holder_sequence)
        finally:
            backend.close()

    def _open(self) -> tuple[OpenReservation, AttemptRecord]:
        reservation = open_reservation(self.run_uri, self.generation)
        return reservation, reservation.attempt(self.attempt)

    def _hook(self, role: str) -> TpuHook:
        from hooks.tpu import TpuHook

        return TpuHook(self.gcp_conn_id, self.impersonation_chain, role)

    def _deadline_time(self) -> datetime:
        return datetime.fromtimestamp(self.deadline, UTC)

    def _event(self, outcome: str, reason: str, **details: Any) -> TriggerEvent:
        return TriggerEvent(
            {
                "outcome": str(outcome),
                "reason": reason,
                "cause": "",
                "generation": self.generation,
                "attempt": self.attempt,
                "holder_sequence": self.holder_sequence,
                **details,
            }
        )


def _may_pass(error: Exception) -> bool:
    """Return whether an error may be transient, as when the store or the service is unavailable."""
    from google.api_core.exceptions import GoogleAPIError, NotFound
    from google.auth.exceptions import GoogleAuthError

    if isinstance(error, TpuError):
        # Without permission to poll, the job's own reports are not read either: report the error.
        return error.retryable and not isinstance(error, TpuPermissionError)
    if isinstance(error, FileNotFoundError | NotFound):
        return False
    return isinstance(error, OSError | GoogleAPIError | GoogleAuthError)


class TpuPauseTrigger(SettledTrigger):
    """A trigger that fires at a given time, when the task, which holds no TPU, asks again for one.

    :param until: when to fire, in epoch seconds.
    """

    def __init__(self, *, until: float) -> None:
        super().__init__()
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path that the triggerer imports, and the arguments."""
        return "triggers.tpu.TpuPauseTrigger", {"until": self.until}

    async def events(self) -> AsyncIterator[TriggerEvent]:
        """Sleep, then fire once."""
        await asyncio.sleep(max(0.0, self.until - time.time()))
        yield TriggerEvent({"outcome": PAUSED, "reason": "time to ask again"})


class TpuReadyTrigger(_TpuTrigger):
    """A trigger that fires when a requested TPU is READY, or will not become so."""

    _shown = ""

    def _watch(
        self, backend: TpuBackend, reservation: OpenReservation, record: AttemptRecord
    ) -> ReadyWatch:
        return ReadyWatch(backend, reservation, record, self._deadline_time())

    def _show(self, seen: Observation) -> None:
        text = seen.tpu.describe() if seen.tpu else "the TPU service does not answer"
        if text != self._shown:
            self.log.info("Attempt %d: %s", self.attempt, text)
            self._shown = text


class TpuJobTrigger(_TpuTrigger):
    """A trigger that fires when a job has ended on all workers, or can no longer end.

    Meanwhile the job's log and progress appear in the task's log.

    :param job_id: the job in the attempt's mailbox.
    :param viewer: the reader whose position in the job's log is resumed: the task's try.
    """

    _shown = ""
    _tells_steps = False

    def __init__(self, *, job_id: str, viewer: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job_id = job_id
        self.viewer = viewer

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path that the triggerer imports, and the arguments."""
        path, arguments = super().serialize()
        return path, arguments | {"job_id": self.job_id, "viewer": self.viewer}

    def _watch(
        self, backend: TpuBackend, reservation: OpenReservation, record: AttemptRecord
    ) -> JobWatch:
        return JobWatch(
            backend,
            reservation,
            record,
            self.job_id,
            self._deadline_time(),
            LogReader(record.layout, self.job_id, self.viewer),
        )

    def _show(self, seen: Observation) -> None:
        for line in seen.log_lines:
            self.log.info("%s | %s", self.job_id, line)
        self._tells_steps |= any(_STEPS.search(line) for line in seen.log_lines)
        # A trainer logs its steps itself; the progress of other jobs is logged here.
        text = progress_text(seen.progress) if seen.progress and not self._tells_steps else ""
        if text and text != self._shown:
            self.log.info("%s: %s", self.job_id, text)
            self._shown = text
