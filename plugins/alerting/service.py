"""What the TPU service says of a TPU of ours, for those who can do without its answer."""

from __future__ import annotations

import logging

from pipeline_config.settings import load_settings
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.service.backend import TpuState

log = logging.getLogger(__name__)


def tpu_of(reservation: OpenReservation, record: AttemptRecord) -> TpuState | None:
    """Return the state of an attempt's TPU; None when the service cannot be asked now.

    Asked through the installation's connection, ``REPRETRAIN_GCP_CONN_ID``.
    """
    # Imported late: Google's provider is slow to load, and few passes have to ask.
    from hooks.tpu import TpuHook

    try:
        hook = TpuHook(load_settings().gcp_conn_id, role="watch")
        return hook.backend(reservation.record.project_id).describe(record.name)
    except Exception as error:  # noqa: BLE001 - the store alone says enough for an alert
        log.warning("The TPU service cannot be asked for %s: %r", record.name, error)
        return None
