"""Asks for TPUs so that none can be asked for twice, forgotten, or made after the release."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline_store.formats import AttemptEvent
from pipeline_store.layout import StoreLayout
from tpu_lifecycle import labels
from tpu_lifecycle.attempts import AttemptRecord, asked_everywhere, next_zone
from tpu_lifecycle.backend import (
    TpuBackend,
    TpuCapacityError,
    TpuConflictError,
    TpuError,
    TpuQuotaError,
    TpuRequest,
    TpuUnavailableError,
)
from tpu_lifecycle.launcher import Launcher
from tpu_lifecycle.log import Log
from tpu_lifecycle.release import delete_attempt, finish_deletion, give_back_earlier, give_up
from tpu_lifecycle.reservation import OpenReservation, ReleasedError
from tpu_lifecycle.sweep import Sweeper

CREATE_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Before each repetition of a create call that the service did not answer."""

_log = logging.getLogger(__name__)


class PreemptionBudgetError(RuntimeError):
    """More TPUs were lost than ``budget.max_preemptions`` replaces."""


class BootFailureError(RuntimeError):
    """TPUs come up, but their agents never report: asking for more of them cannot help."""


@dataclass
class Provisioner:
    """Obtains the TPU of a reservation.

    :param is_cancelled: asked around every create call, besides the tombstone; a task that is being
        killed so deletes what it has just made.
    :param on_attempt: told of every attempt before it is asked for.
    """

    reservation: OpenReservation
    store: StoreLayout
    backend: TpuBackend
    launcher: Launcher
    sweeper: Sweeper
    is_cancelled: Callable[[], bool] = lambda: False
    on_attempt: Callable[[AttemptRecord], object] = lambda record: None
    log: Log = field(default_factory=lambda: _log)

    def obtain(self) -> AttemptRecord:
        """Return the attempt in use, or make the next one; the service has accepted it.

        It may not be READY yet. Safe to repeat by another process: an attempt of unknown outcome
        is asked for again under the same name, which can never make a second TPU.

        :raises ReleasedError: the reservation is released or used up.
        :raises PreemptionBudgetError: no further TPU may be lost.
        :raises BootFailureError: two TPUs in a row never reported.
        :raises TpuError: no zone has one now, or the request can never work.
        """
        give_back_earlier(self.reservation, self.sweeper)
        while True:
            record = self._current()
            self._check_open(record.number)
            self.on_attempt(record)
            try:
                self.ensure_created(record)
            except (TpuCapacityError, TpuQuotaError, TpuUnavailableError) as error:
                give_up(
                    self.reservation,
                    self.reservation.attempt(record.number),
                    self.sweeper,
                    event=AttemptEvent.REFUSED,
                    reason=str(error),
                )
                if asked_everywhere(self.reservation.record.zones, self.reservation.attempts()):
                    raise
                self.log.warning("%s; asking in the next zone", error)
            else:
                return self.reservation.attempt(record.number)

    def ensure_created(self, record: AttemptRecord) -> None:
        """Ask for the attempt's TPU unless the service already has it.

        :raises ReleasedError: released meanwhile; what was made is deleted.
        :raises TpuConflictError: the name is taken by something that is not ours.
        :raises TpuUnavailableError: no answer to any try; the TPU may still appear.
        """
        if not record.may_land:
            return
        request = self.request(record)
        problem: TpuError | None = None
        for pause in (*CREATE_PAUSES_SECONDS, None):
            self._check_open(record.number)
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

    def _current(self) -> AttemptRecord:
        """Return the usable attempt; replace one that was given up, or whose TPU is gone."""
        records = self.reservation.attempts()
        for record in records:
            if record.needs_deletion:
                finish_deletion(self.reservation, record, self.sweeper)
        newest = records[-1] if records else None
        if newest is not None and newest.is_ready:
            reason = self.backend.describe(newest.name).gone_reason
            if reason is not None:
                give_up(
                    self.reservation,
                    newest,
                    self.sweeper,
                    event=AttemptEvent.LOST,
                    reason=reason,
                )
                records, newest = self.reservation.attempts(), None
        if newest is not None and newest.is_usable:
            self.log.info("Going on with attempt %d, %s", newest.number, newest.name)
            return newest
        return self._next(records)

    def _next(self, records: list[AttemptRecord]) -> AttemptRecord:
        lost = [record for record in records if AttemptEvent.LOST in record.marks]
        allowed = self.reservation.config.budget.max_preemptions
        if len(lost) > allowed:
            raise PreemptionBudgetError(
                f"{self.reservation} lost {len(lost)} TPUs; budget.max_preemptions={allowed} "
                f"allows no further one. Last: {lost[-1].outcome}. Training can be resumed: clear "
                "the reserve task."
            )
        if len(lost) > 1 and not any(record.has_reported() for record in lost[-2:]):
            raise BootFailureError(
                f"{self.reservation}: two TPUs in a row came up but their agents never reported. "
                "Check that tpu.service_account may read and write the store, that the subnetwork "
                "has Private Google Access, and the startup script's log on the VM "
                "(journalctl -u google-startup-scripts)."
            )
        self._check_open(len(records))
        zone = next_zone(self.reservation.record.zones, records)
        record = self.reservation.new_attempt(len(records) + 1, zone)
        self.log.info("Attempt %d: asking for %s", record.number, record.name)
        return record

    def _check_open(self, newest: int) -> None:
        self.reservation.check_may_create(newest)
        if self.is_cancelled():
            raise ReleasedError(f"{self.reservation}: this task is being cancelled.")

    def _ask(
        self, record: AttemptRecord, request: TpuRequest, *, may_land_already: bool
    ) -> TpuError | None:
        """Send one create call; returns what was wrong."""
        try:
            self._create_or_adopt(request)
        except TpuUnavailableError as error:
            return error
        except TpuError as error:
            # A refusal says nothing of an earlier call that had no answer.
            if not may_land_already:
                record.mark(AttemptEvent.ANSWERED, str(error))
            return error
        record.mark(AttemptEvent.ANSWERED)
        return None

    def _undo_if_released(self, record: AttemptRecord) -> None:
        """Look for the tombstone right after a create call, whatever came of it."""
        try:
            self._check_open(record.number)
        except ReleasedError:
            self.log.warning("Released while %s was asked for; deleting it", record.name)
            delete_attempt(self.reservation, record, self.sweeper)
            raise

    def _create_or_adopt(self, request: TpuRequest) -> None:
        try:
            self.backend.create(request)
        except TpuConflictError as error:
            state = self.backend.describe(request.name)
            if not state.exists:
                # Seen right after a create: the service contradicts itself for a moment.
                raise TpuUnavailableError(f"{error} But there is none of this name.") from error
            if not request.labels.items() <= state.labels.items():
                raise TpuConflictError(
                    f"{request.name} exists but is not ours: its labels are {dict(state.labels)}, "
                    f"expected {dict(request.labels)}. It is left alone; delete it by hand or "
                    "clear the reserve task for new names."
                ) from error
            self.log.info("%s exists already: an earlier reply was lost", request.name)

    def request(self, record: AttemptRecord) -> TpuRequest:
        """Return what is asked of the service for an attempt; the same each time."""
        tpu = self.reservation.config.tpu
        reservation = self.reservation.record
        # Counted from the attempt's record, not from now: a repetition has to ask for the same.
        left = int((reservation.expires_at - record.attempt.created).total_seconds())
        metadata = self.launcher(
            mailbox_uri=record.layout.root,
            released_uri=self.reservation.layout.released,
            bundle_uri=self.store.bundle(reservation.bundle_sha256),
            bundle_sha256=reservation.bundle_sha256,
            token=record.attempt.token,
            expires_at=reservation.expires_at,
            heartbeat_interval_seconds=tpu.heartbeat_interval_seconds,
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
            network=tpu.network,
            subnetwork=tpu.subnetwork,
            enable_external_ips=tpu.enable_external_ips,
            service_account=tpu.service_account,
        )
