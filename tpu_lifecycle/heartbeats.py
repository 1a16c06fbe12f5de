"""The last sign of life of an attempt's workers, as far as it can be read."""

from __future__ import annotations

from pipeline_store.formats import FormatError, Heartbeat
from tpu_lifecycle.attempts import AttemptRecord


def read_heartbeat(record: AttemptRecord, worker: int) -> Heartbeat | None:
    """Return a worker's last heartbeat; None when there is none, or an orphan wrote it.

    One that cannot be read is none: it is written again and again, so if it stays damaged its
    worker has died and counts as silent.
    """
    try:
        beat = Heartbeat.load_or_none(record.layout.heartbeat(worker))
    except FormatError:
        return None
    return beat if beat and beat.token == record.attempt.token else None
