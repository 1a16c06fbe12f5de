"""Bases of the TPU operators: they bring a TPU to READY, and delete it when the task is ended."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout

from links.task_page import RunFolderLink, TpuConsoleLink
from operators.own_run import own_rental
from operators.tpu_failures import FailureKind, TpuTaskFailed, TpuTaskRetry, typed_failures
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.boot.launcher import boot_metadata
from tpu_lifecycle.control.capacity import QuotaInUseError, StockoutError, present_round
from tpu_lifecycle.control.provisioning import Provisioner
from tpu_lifecycle.control.release import (
    CancelledAttemptError,
    Sweeper,
    become_holder,
    fenced_delete,
)
from tpu_lifecycle.control.verdict import Outcome
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.budgets import renewal_advice
from tpu_lifecycle.records.ledger import timeline
from tpu_lifecycle.records.reservation import (
    OpenReservation,
    ReleasedError,
    SupersededError,
    open_reservation,
)
from tpu_lifecycle.service.backend import TpuBackend, TpuError, TpuName
from triggers.tpu import TpuPauseTrigger, TpuReadyTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from hooks.tpu import TpuHook

KILL_SECONDS = 10.0

LONGEST_PAUSE = timedelta(minutes=15)
"""Longest pause between two rounds through the zones; the first is the task's ``retry_delay``, and
each next one is twice as long."""

_MOST_DOUBLINGS = 12

EVENT_KINDS = {
    Outcome.RELEASED: FailureKind.RELEASED,
    Outcome.DEADLINE: FailureKind.BUDGET,
    Outcome.BUDGET: FailureKind.BUDGET,
}
"""Failure kinds of the outcomes after which another try of the task cannot help."""

USED_UP = {
    Outcome.DEADLINE: "budget.max_hours",
    Outcome.BUDGET: "budget.max_chip_hours",
}
"""The budget setting that an outcome reports as used up."""


class TpuOperator(BaseOperator):
    """Base of all TPU operators.

    :param store_uri: the store. (templated)
    :param gcp_conn_id: Airflow connection; see :class:`hooks.tpu.TpuHook`. (templated)
    :param impersonation_chain: service account to impersonate, or a chain of them. (templated)
    """

    template_fields: Sequence[str] = ("store_uri", "gcp_conn_id", "impersonation_chain")
    role = "task"
    """Part of the user agent of its calls to the TPU service; see :class:`hooks.tpu.TpuHook`."""

    def __init__(
        self,
        *,
        store_uri: str,
        gcp_conn_id: str = "google_cloud_default",
        impersonation_chain: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.gcp_conn_id = gcp_conn_id
        self.impersonation_chain = impersonation_chain

    @property
    def hook(self) -> TpuHook:
        """Return a hook for the connection."""
        return self._hook(self.role)

    def _hook(self, role: str) -> TpuHook:
        # Imported late: Google's provider is slow to load, and DAG files import this module.
        from hooks.tpu import TpuHook

        return TpuHook(self.gcp_conn_id, self.impersonation_chain, role)


class TpuRunScopedOperator(TpuOperator):
    """Base of the operators that work for the pipeline run that their task belongs to.

    In a mapped group of tasks each index has a TPU and a folder of its own; see
    :func:`operators.own_run.own_rental`.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (RunFolderLink(),)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run_uri = ""

    def find_run(self, context: Context) -> RunLayout:
        """Find the folder that the TPU is rented for, with ``run.json`` and ``config.json``.

        Each method that Airflow may call first in a process of the task must begin with this.
        """
        rental = own_rental(context, self.store_uri)
        # Used by triggers, on_kill and the link.
        self.run_uri = rental.root
        return rental

    def _backend(self, reservation: OpenReservation) -> TpuBackend:
        return self.hook.backend(reservation.record.project_id)

    def _show_timeline(self, reservation: OpenReservation) -> None:
        for line in timeline(reservation.attempts()):
            self.log.info("Timeline: %s", line)

    def _sweeper(self, reservation: OpenReservation) -> Sweeper:
        return Sweeper(self._backend(reservation), log=self.log)


class TpuAttemptOperator(TpuRunScopedOperator):
    """Base of the operators that bring the newest reservation's TPU to READY, then work with it.

    Waiting happens in triggers. All state is in the store, so that a retry, or a task that was
    cleared, goes on with the existing TPU instead of asking for a second one.
    """

    operator_extra_links = (RunFolderLink(), TpuConsoleLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tpu_place: tuple[str, TpuName] | None = None
        self.holder_sequence: int | None = None
        self._in_hand: tuple[TpuHook, OpenReservation, AttemptRecord] | None = None
        self._is_cancelled = False

    def execute(self, context: Context) -> Any:
        """Go on with the existing TPU, or ask for one."""
        self.find_run(context)
        with typed_failures():
            return self._begin(context, open_reservation(self.run_uri))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Resume the task, also when no trigger could report how the wait ended.

        A deferral that timed out means that Airflow was down for that long. The TPU may be READY by
        now and its job may run or have ended, so the TPU is kept unless the reservation is over.
        """
        self.find_run(context)
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self.log.warning(
                "The wait for the TPU timed out without a word of its trigger. Was the triggerer "
                "down? Going on with what there is."
            )
            with typed_failures():
                return self._resume(context, open_reservation(self.run_uri))
        except TaskDeferralError as error:
            text = f"The trigger itself failed: {error} A retry goes on with the TPU there is."
            raise TpuTaskRetry(FailureKind.INFRASTRUCTURE, text) from error

    def ready(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on when the wait for READY is over."""
        with typed_failures():
            reservation, record = self._reopen(event)
            if event["outcome"] == Outcome.READY:
                self._provisioner(reservation).delete_given_up()
                return self._use(context, reservation, record)
            if event["outcome"] == Outcome.LOST:
                self._provisioner(reservation).lose(record, event["reason"], event["cause"])
                return self._obtain(context, reservation)
            if event["outcome"] not in (Outcome.REFUSED, Outcome.DEADLINE):
                self._fail(reservation, event)
            with self._patience(reservation):
                self._provisioner(reservation).refuse(record, event["reason"], event["cause"])
            return self._obtain(context, reservation)

    def search(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a pause between two rounds through the zones."""
        del event
        with typed_failures():
            return self._begin(context, open_reservation(self.run_uri))

    def on_kill(self) -> None:
        """Delete the TPU that the task holds, when the task is ended while its process works.

        Called inside a signal handler: the interrupted code may hold locks of the shared channel,
        so another thread deletes, over a channel of its own. A create call in flight is undone by
        the task itself when it returns, and by the teardown if the process dies first.
        """
        self._is_cancelled = True
        if self._in_hand is not None:
            worker = threading.Thread(target=self._delete_in_hand, args=self._in_hand, daemon=True)
            worker.start()
            worker.join(KILL_SECONDS)

    @abstractmethod
    def _use(self, context: Context, reservation: OpenReservation, record: AttemptRecord) -> Any:
        """Do the task's work with a TPU that is READY."""

    def _begin(self, context: Context, reservation: OpenReservation) -> Any:
        """Start the task, or a further try of it."""
        return self._obtain(context, reservation)

    def _resume(self, context: Context, reservation: OpenReservation) -> Any:
        """Go on like another try; delete the TPU if the reservation is over."""
        try:
            return self._begin(context, reservation)
        except SupersededError:
            raise
        except ReleasedError as error:
            for record in reservation.attempts()[-1:]:
                self._stop(reservation, record, str(error))
            raise

    def _obtain(self, context: Context, reservation: OpenReservation) -> Any:
        with self._patience(reservation):
            record = self._provisioner(reservation).obtain()
        if record.is_ready:
            return self._use(context, reservation, record)
        return self._wait_until_ready(reservation, record)

    @contextmanager
    def _patience(self, reservation: OpenReservation) -> Iterator[None]:
        """Defer when a round through all zones found no TPU; only the run's time limit ends this.

        Airflow's retries are for failures, and waiting for capacity is not one.
        """
        try:
            yield
        except (StockoutError, QuotaInUseError) as error:
            self._pause(reservation, error)

    def _pause(self, reservation: OpenReservation, error: TpuError) -> NoReturn:
        record = reservation.record
        over = present_round(record.zones, reservation.attempts()).number - 1
        pause = self.retry_delay * 2 ** min(max(over - 1, 0), _MOST_DOUBLINGS)
        until = datetime.now(UTC) + min(pause, LONGEST_PAUSE)
        if until >= record.expires_at:
            kind = FailureKind.QUOTA if isinstance(error, QuotaInUseError) else FailureKind.STOCKOUT
            raise TpuTaskFailed(
                kind,
                f"{error} {reservation} expires at {record.expires_at:%F %T} UTC, before the next "
                f"round. {renewal_advice(reservation.run, 'budget.max_hours')}",
            )
        self.log.warning("%s Asked again at %s UTC", error, f"{until:%F %T}")
        self._show_timeline(reservation)
        self.defer(
            trigger=TpuPauseTrigger(until=until.timestamp()),
            method_name="search",
            timeout=timeout_after(until, reservation.config.tpu.poll_interval),
        )

    def _wait_until_ready(self, reservation: OpenReservation, record: AttemptRecord) -> None:
        tpu = reservation.config.tpu
        seconds = tpu.queue_timeout_seconds + tpu.boot_timeout_seconds
        deadline = record.attempt.created + timedelta(seconds=seconds)
        deadline = min(deadline, reservation.record.expires_at)
        self.log.info("Waiting for %s, at most until %s UTC", record.name, f"{deadline:%F %T}")
        self.defer(
            trigger=TpuReadyTrigger(**self._trigger_arguments(reservation, record, deadline)),
            method_name="ready",
            timeout=timeout_after(deadline, tpu.poll_interval),
        )

    def _fail(self, reservation: OpenReservation, event: dict[str, Any]) -> NoReturn:
        """Raise the failure that fits an event after which this task cannot go on.

        :raises TpuTaskFailed: another try cannot help.
        :raises TpuTaskRetry: another try may help.
        """
        text = f"{reservation}, attempt {event['attempt']}: {event['outcome']}: {event['reason']}"
        kind = EVENT_KINDS.get(event["outcome"])
        if kind is None:
            raise TpuTaskRetry(FailureKind.INFRASTRUCTURE, text)
        setting = USED_UP.get(event["outcome"])
        advice = renewal_advice(reservation.run, setting) if setting else ""
        raise TpuTaskFailed(kind, f"{text}. {advice}".rstrip())

    def _reopen(self, event: dict[str, Any]) -> tuple[OpenReservation, AttemptRecord]:
        """Return the reservation and the attempt of a trigger's event."""
        reservation = open_reservation(self.run_uri, event["generation"])
        record = reservation.attempt(event["attempt"])
        self._take(reservation, record, event["holder_sequence"])
        return reservation, record

    def _take(
        self, reservation: OpenReservation, record: AttemptRecord, holder_sequence: int
    ) -> None:
        """Remember the attempt, for on_kill and the console link."""
        hook = self._hook("on-kill")
        self.holder_sequence = holder_sequence
        self._in_hand = (hook, reservation, record)
        if not hook.is_insecure:
            self.tpu_place = (reservation.record.project_id, record.name)

    def _provisioner(self, reservation: OpenReservation) -> Provisioner:
        sweeper = self._sweeper(reservation)
        return Provisioner(
            reservation=reservation,
            store=StoreLayout(self.store_uri),
            backend=sweeper.backend,
            launcher=boot_metadata,
            sweeper=sweeper,
            is_cancelled=lambda: self._is_cancelled,
            on_attempt=lambda record, sequence: self._take(reservation, record, sequence),
            log=self.log,
        )

    def _trigger_arguments(
        self, reservation: OpenReservation, record: AttemptRecord, deadline: datetime
    ) -> dict[str, Any]:
        return {
            "run_uri": self.run_uri,
            "generation": reservation.record.generation,
            "attempt": record.number,
            "deadline": deadline.timestamp(),
            "poll_interval": reservation.config.tpu.poll_interval,
            "holder_sequence": self.holder_sequence,
            "gcp_conn_id": self.gcp_conn_id,
            "impersonation_chain": self.impersonation_chain,
        }

    def _stop(self, reservation: OpenReservation, record: AttemptRecord, reason: str) -> None:
        """Request the deletion of this task's own TPU, whose time is over; the teardown confirms.

        A task that has not become the attempt's holder takes it over first, as its next try would.
        """
        try:
            sequence = self.holder_sequence
            if sequence is None:
                sequence = become_holder(reservation.run, record.attempt).sequence
            backend = self._backend(reservation)
            fenced_delete(backend, reservation, record, holder_sequence=sequence, reason=reason)
        except (ReleasedError, CancelledAttemptError) as error:
            self.log.warning("%s is another task's: %s", record.name, error)
        except TpuError as error:
            self.log.warning("%s; the teardown deletes it", error)

    def _delete_in_hand(
        self, hook: TpuHook, reservation: OpenReservation, record: AttemptRecord
    ) -> None:
        backend = hook.new_backend(reservation.record.project_id)
        try:
            fenced_delete(backend, reservation, record, holder_sequence=self.holder_sequence)
        except Exception as error:  # noqa: BLE001 - nothing may escape from a signal handler
            self.log.warning("Could not delete %s: %r; the teardown does", record.name, error)
        finally:
            backend.close()


def timeout_after(deadline: datetime, poll_interval: float) -> timedelta:
    """Return a deferral's timeout: well after its trigger's own deadline, which should win."""
    spare = timedelta(seconds=60 + 3 * poll_interval)
    return max(deadline - datetime.now(UTC), timedelta(0)) + spare
