"""Asks the service for an attempt's TPU so that none can be made twice, or after the release."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline_store.formats import AttemptEvent
from pipeline_store.layout import StoreLayout
from tpu_lifecycle import labels
from tpu_lifecycle.attempts import AttemptRecord
from tpu_lifecycle.backend import (
    TpuBackend,
    TpuConflictError,
    TpuError,
    TpuRequest,
    TpuUnavailableError,
)
from tpu_lifecycle.launcher import Launcher
from tpu_lifecycle.log import Log
from tpu_lifecycle.release import delete_attempt
from tpu_lifecycle.reservation import OpenReservation, ReleasedError
from tpu_lifecycle.sweep import Sweeper

CREATE_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Before each repetition of a create call that the service did not answer."""

_log = logging.getLogger(__name__)


@dataclass
class Asker:
    """Sends create calls for a reservation.

    :param is_cancelled: asked around every create call, besides the tombstone; a task that is being
        killed so deletes what it has just made.
    """

    reservation: OpenReservation
    store: StoreLayout
    backend: TpuBackend
    launcher: Launcher
    sweeper: Sweeper
    is_cancelled: Callable[[], bool] = lambda: False
    log: Log = field(default_factory=lambda: _log)

    def check_open(self, newest: int) -> None:
        """Do nothing while something may be asked for.

        :param newest: number of the newest attempt, as far as the caller knows.
        :raises ReleasedError: it may not.
        """
        self.reservation.check_may_create(newest)
        if self.is_cancelled():
            raise ReleasedError(f"{self.reservation}: this task is being cancelled.")

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

    def _ask(
        self, record: AttemptRecord, request: TpuRequest, *, may_land_already: bool
    ) -> TpuError | None:
        """Send one create call; returns what was wrong."""
        try:
            operation = self._create_or_adopt(request)
        except TpuUnavailableError as error:
            return error
        except TpuError as error:
            # A refusal says nothing of an earlier call that had no answer.
            if not may_land_already:
                record.mark(AttemptEvent.ANSWERED, str(error), cause=type(error).__name__)
            return error
        record.mark(AttemptEvent.ANSWERED, operation=operation)
        return None

    def _undo_if_released(self, record: AttemptRecord) -> None:
        """Look for the tombstone right after a create call, whatever came of it."""
        try:
            self.check_open(record.number)
        except ReleasedError:
            self.log.warning("Released while %s was asked for; deleting it", record.name)
            delete_attempt(self.reservation, record, self.sweeper)
            raise

    def _create_or_adopt(self, request: TpuRequest) -> str:
        """Return the service's operation, an empty string for a TPU that is there already."""
        try:
            return self.backend.create(request)
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
            return ""

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
            tpu_name=self.backend.resource_path(record.name, tpu.api),
            tpu_api_endpoint=self.backend.vm_endpoint,
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
