"""Obtains a reservation's TPU: continues the attempt in use, or makes the next one in some zone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline_store.formats import AttemptEvent
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.boot.launcher import Launcher
from tpu_lifecycle.control import capacity
from tpu_lifecycle.control.capacity import (
    Cooldowns,
    QuotaInUseError,
    StockoutError,
    check_zones,
    present_round,
    refuses_for_good,
)
from tpu_lifecycle.control.mailbox import LeaseKeeper
from tpu_lifecycle.control.observe import Sight
from tpu_lifecycle.control.release import (
    CancelledAttemptError,
    Log,
    Sweeper,
    become_holder,
    delete_attempt,
    finish_deletion,
    give_back_earlier,
    give_up,
    is_ours,
)
from tpu_lifecycle.records.attempts import AttemptRecord, Loss
from tpu_lifecycle.records.budgets import check_next_attempt, newest_checkpoint
from tpu_lifecycle.records.ledger import timeline
from tpu_lifecycle.records.reservation import OpenReservation, ReleasedError
from tpu_lifecycle.service import labels
from tpu_lifecycle.service.backend import (
    TpuAccessError,
    TpuBackend,
    TpuConflictError,
    TpuError,
    TpuRequest,
    TpuState,
    TpuUnavailableError,
    error_of,
)

CREATE_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Before each retry of a create call that the service did not answer."""

SECOND_LOOK_PAUSES = 10
"""The sweeper's pauses before a second poll of a TPU of which a part seems to be missing."""

_log = logging.getLogger(__name__)


@dataclass
class Asker:
    """Sends create calls for a reservation.

    :param is_cancelled: called around every create call, in addition to the tombstone check, so
        that a task that is being killed deletes what it has just created.
    """

    reservation: OpenReservation
    store: StoreLayout
    backend: TpuBackend
    launcher: Launcher
    sweeper: Sweeper
    is_cancelled: Callable[[], bool] = lambda: False
    log: Log = field(default_factory=lambda: _log)

    def check_open(self, newest: int) -> None:
        """Check that a TPU may be requested.

        :param newest: number of the newest attempt, as far as the caller knows.
        :raises ReleasedError: it may not.
        """
        self.reservation.check_may_create(newest)
        if self.is_cancelled():
            raise ReleasedError(f"{self.reservation}: this task is being cancelled.")

    def ensure_created(self, record: AttemptRecord) -> None:
        """Request the attempt's TPU unless the service already has it.

        :raises ReleasedError: released meanwhile; what was created is deleted.
        :raises TpuConflictError: the name is taken by something that is not ours.
        :raises TpuUnavailableError: no answer to any retry; the TPU may still appear.
        :raises TpuError: the service refuses, or has refused an earlier process.
        """
        if not record.may_land:
            self._check_answer(record)
            return
        request = self.request(record)
        problem: TpuError | None = None
        for pause in (*CREATE_PAUSES_SECONDS, None):
            self.check_open(record.number)
            may_land_already = record.asked is not None
            record = record.mark_asked()
            problem = self._ask(record, request, may_land_already=may_land_already)
            self._undo_if_released(record)
            if problem is None:
                return
            if not isinstance(problem, TpuUnavailableError):
                break
            if pause is not None:
                self.log.warning("%s; trying again in %.0f s", problem, pause)
                time.sleep(pause)
        if problem is not None:
            raise problem

    def _check_answer(self, record: AttemptRecord) -> None:
        """Raise the refusal recorded by a process that died before it gave the attempt up."""
        answer = record.marks.get(AttemptEvent.ANSWERED)
        if answer is not None and answer.cause and AttemptEvent.READY not in record.marks:
            raise error_of(answer.cause, answer.reason)

    def _ask(
        self, record: AttemptRecord, request: TpuRequest, *, may_land_already: bool
    ) -> TpuError | None:
        """Send one create call; return its error, or None."""
        try:
            operation = self._create_or_adopt(record, request)
        except TpuUnavailableError as error:
            return error
        except TpuError as error:
            # A refusal says nothing about an earlier call that had no answer.
            if not may_land_already:
                record.mark(AttemptEvent.ANSWERED, str(error), cause=type(error).__name__)
            return error
        record.mark(AttemptEvent.ANSWERED, operation=operation)
        return None

    def _undo_if_released(self, record: AttemptRecord) -> None:
        """Delete the TPU if the reservation was released during a create call, whatever its result.

        :raises ReleasedError: it was.
        """
        try:
            self.check_open(record.number)
        except ReleasedError:
            self.log.warning("Released while %s was asked for; deleting it", record.name)
            delete_attempt(self.reservation, record, self.sweeper)
            raise

    def _create_or_adopt(self, record: AttemptRecord, request: TpuRequest) -> str:
        """Return the service's operation, or an empty string for a TPU that already exists."""
        try:
            return self.backend.create(request)
        except TpuConflictError as error:
            state = self._present(request)
            if not state.exists:
                # Seen right after a create: the service contradicts itself for a moment.
                raise TpuUnavailableError(f"{error} But there is none of this name.") from error
            if not request.labels.items() <= state.labels.items():
                what = (
                    "is of an earlier request of this run, and is deleted"
                    if is_ours(self.reservation, record, state)
                    else "is not ours. It is left alone; delete it by hand"
                )
                raise TpuConflictError(
                    f"{request.name} exists but {what}: its labels are {dict(state.labels)}, "
                    f"expected {dict(request.labels)}. Clear the reserve task for new names."
                ) from error
            self.log.info("%s exists already: an earlier reply was lost", request.name)
            return ""

    def _present(self, request: TpuRequest) -> TpuState:
        """Return the TPU that has the name; if that fails, the create call counts as unanswered."""
        try:
            return self.backend.describe(request.name)
        except TpuError as error:
            raise TpuUnavailableError(
                f"{request.name} exists, but nobody can tell whose it is: {error}"
            ) from error

    def request(self, record: AttemptRecord) -> TpuRequest:
        """Return the create request for an attempt; the same each time."""
        tpu = self.reservation.config.tpu
        reservation = self.reservation.record
        # Counted from the attempt's record, not from now: a retry must send the same request.
        left = int((reservation.expires_at - record.attempt.created).total_seconds())
        metadata = self.launcher(
            mailbox_uri=record.layout.root,
            released_uri=self.reservation.layout.released,
            bundle_uri=self.store.bundle(reservation.bundle_sha256),
            bundle_sha256=reservation.bundle_sha256,
            token=record.attempt.token,
            job_key=self.reservation.job_key,
            expires_at=reservation.expires_at,
            heartbeat_interval_seconds=tpu.heartbeat_interval_seconds,
            tpu_name=self.backend.resource_path(record.name, tpu.api),
            tpu_api_endpoint=self.backend.vm_endpoint,
            tpu_deletions=self.backend.vm_deletions(record.name, tpu.api),
            lease_timeout_seconds=tpu.lease_timeout_seconds,
            container_image=tpu.container_image,
        )
        return TpuRequest(
            name=record.name,
            accelerator_type=tpu.accelerator_type,
            runtime_version=tpu.runtime_version,
            provisioning_model=tpu.provisioning_model,
            queue_timeout_seconds=max(1, min(tpu.queue_timeout_seconds, left)),
            labels=labels.attempt_labels(reservation, record.attempt),
            metadata=metadata,
            token=record.attempt.token,
            api=tpu.api,
            reservation_name=tpu.reservation_name,
            network=tpu.network,
            subnetwork=tpu.subnetwork,
            enable_external_ips=tpu.enable_external_ips,
            service_account=tpu.service_account,
            network_tags=tpu.network_tags,
            data_disks=tpu.data_disks,
        )


_ENDS_OF_ROUNDS: dict[str, type[TpuError]] = {
    TpuUnavailableError.__name__: TpuUnavailableError,
    TpuAccessError.__name__: TpuAccessError,
    capacity.QUOTA: QuotaInUseError,
}
"""Errors to raise when a round ends without a TPU, by the cause of its last refusal."""


@dataclass
class Provisioner:
    """Obtains the TPU of a reservation.

    :param is_cancelled: called around every create call, in addition to the tombstone check.
    :param on_attempt: called with every attempt before its TPU is requested, and with the sequence
        number of this process's holder entry.
    """

    reservation: OpenReservation
    store: StoreLayout
    backend: TpuBackend
    launcher: Launcher
    sweeper: Sweeper
    is_cancelled: Callable[[], bool] = lambda: False
    on_attempt: Callable[[AttemptRecord, int], object] = lambda record, sequence: None
    log: Log = field(default_factory=lambda: _log)

    def obtain(self) -> AttemptRecord:
        """Return the attempt in use, or make the next one; the service has accepted its request.

        Its TPU may not be READY yet. Safe to repeat by another process: an attempt of unknown
        outcome is requested again under the same name, which can never create a second TPU.

        :raises ReleasedError: the reservation is released or used up.
        :raises BudgetError: no further TPU may be requested.
        :raises QuotaExhaustedError: no zone's quota is large enough.
        :raises TpuError: no zone has a TPU now, or each refuses for good.
        """
        give_back_earlier(self.reservation, self.sweeper)
        while True:
            record = self._current()
            self._asker.check_open(record.number)
            try:
                holder = become_holder(self.reservation.run, record.attempt)
            except CancelledAttemptError as error:
                event = AttemptEvent.CANCELLED
                give_up(self.reservation, record, self.sweeper, event=event, reason=str(error))
                continue
            # Before the first poll of the TPU, which may take long: a task that is cancelled
            # meanwhile must already know its attempt.
            self.on_attempt(record, holder.sequence)
            if record.is_ready and (reason := self._gone_reason(record)) is not None:
                self.lose(record, reason, Loss.TAKEN)
                continue
            LeaseKeeper(record, self.reservation.config.tpu.lease_timeout_seconds).renew()
            try:
                self._asker.ensure_created(record)
            except TpuError as error:
                fresh = self.reservation.attempt(record.number)
                self.refuse(fresh, str(error), type(error).__name__)
            else:
                return self.reservation.attempt(record.number)

    def refuse(self, record: AttemptRecord, reason: str, cause: str) -> None:
        """Give up an attempt that got no TPU; return if another zone is left to ask.

        A zone that refuses for good is left out from now on, and the others are asked.

        :param cause: class of the service's error; empty: unknown.
        :raises StockoutError: the round through all zones is over.
        :raises QuotaInUseError: the round is over, and the last zone's quota is used up.
        :raises TpuUnavailableError: the round is over, and the last zone did not even answer.
        :raises TpuAccessError: the round is over, and the last zone refused the credentials.
        :raises QuotaExhaustedError: no zone's quota is large enough.
        :raises TpuError: every zone refuses for good.
        """
        event, zone = AttemptEvent.REFUSED, record.attempt.zone
        give_up(self.reservation, record, self.sweeper, event=event, reason=reason, cause=cause)
        if cause in capacity.PASSING:
            self._cooldowns.note(zone, reason)
        records, zones = self.reservation.attempts(), self.reservation.record.zones
        walk = present_round(zones, records, seed=self._seed)
        check_zones(zones, walk, records)
        if refuses_for_good(cause):
            self.log.error(
                "Zone %s REFUSES FOR GOOD and is left out of this reservation: %s", zone, reason
            )
        if walk.has_just_begun:
            self.show_timeline(records)
            kind = _ENDS_OF_ROUNDS.get(cause, StockoutError)
            raise kind(
                f"None of {', '.join(zones)} has a {self.reservation.record.accelerator_type} now "
                f"(round {walk.number - 1}). Last: {reason}. Wait, or add tpu.zones."
            )
        self.log.warning("%s: %s; asking in the next zone", record.name, reason)

    def lose(self, record: AttemptRecord, reason: str, cause: str) -> None:
        """Give up an attempt whose TPU was lost, and confirm that it is gone.

        :param cause: machine-readable reason, as in the attempt's mark.
        """
        self.log.warning("Lost %s: %s", record.name, reason)
        give_up(
            self.reservation,
            record,
            self.sweeper,
            event=AttemptEvent.LOST,
            reason=reason,
            cause=cause,
            checkpoint_step=newest_checkpoint(self.reservation.run),
        )
        self.show_timeline(self.reservation.attempts())

    def delete_given_up(self) -> None:
        """Finish the deletion of TPUs whose attempts were given up.

        :raises TpuError: a deletion could not be confirmed.
        """
        for record in self.reservation.attempts():
            if record.needs_deletion:
                finish_deletion(self.reservation, record, self.sweeper)

    def show_timeline(self, records: list[AttemptRecord]) -> None:
        """Log everything that happened to the attempts so far."""
        for line in timeline(records):
            self.log.info("Timeline: %s", line)

    def _current(self) -> AttemptRecord:
        """Return the usable attempt; replace one that was given up."""
        self.delete_given_up()
        records = self.reservation.attempts()
        newest = records[-1] if records else None
        if newest is not None and newest.is_usable:
            self.log.info("Going on with attempt %d, %s", newest.number, newest.name)
            return newest
        return self._next(records)

    def _gone_reason(self, record: AttemptRecord) -> str | None:
        sight = Sight(self.backend, record.name)
        state = sight.look()
        if state is None:
            self.sweeper.sleep(SECOND_LOOK_PAUSES * self.sweeper.pause)
            state = sight.look()
        if state is None:
            self.log.warning("%s cannot be seen now; going on as if it were there", record.name)
            return None
        return state.gone_reason

    def _next(self, records: list[AttemptRecord]) -> AttemptRecord:
        check_next_attempt(self.reservation, records)
        self._asker.check_open(len(records))
        zones, cooling = self.reservation.record.zones, self._cooldowns.cooling()
        walk = present_round(zones, records, cooling=cooling.keys(), seed=self._seed)
        zone = capacity.next_zone(zones, records, cooling=cooling.keys(), seed=self._seed)
        record = self.reservation.new_attempt(
            len(records) + 1, zone, checkpoint_step=newest_checkpoint(self.reservation.run)
        )
        self.log.info("Attempt %d: asking for %s", record.number, record.name)
        if len(zones) > 1:
            self.log.info(
                "Round %d: %s; cooling down: %s; left out: %s",
                walk.number,
                ", ".join(walk.left),
                ", ".join(f"{z} until {end:%T}" for z, end in cooling.items()) or "none",
                ", ".join(sorted(walk.left_out)) or "none",
            )
        return record

    @property
    def _seed(self) -> str:
        return f"{self.reservation.record.run_key}-{self.reservation.record.generation}"

    @property
    def _cooldowns(self) -> Cooldowns:
        tpu = self.reservation.config.tpu
        return Cooldowns(
            self.store,
            self.reservation.record,
            tpu.provisioning_model,
            tpu.zone_cooldown_seconds,
        )

    @property
    def _asker(self) -> Asker:
        return Asker(
            reservation=self.reservation,
            store=self.store,
            backend=self.backend,
            launcher=self.launcher,
            sweeper=self.sweeper,
            is_cancelled=self.is_cancelled,
            log=self.log,
        )
