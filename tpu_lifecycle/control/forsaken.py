"""Tells a READY TPU that nobody looks after any more from one whose Airflow is away for a while.

The TPU VM's own switch gives such a TPU back, unless it may not or cannot; its rules are these. A
pass of the reaper sees one moment only, so each pass notes how far the jobs were.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pipeline_config import ConfigError
from pipeline_store.formats import FormatError, Lease, StandingTpu
from tpu_lifecycle.records.attempts import AttemptRecord, read_heartbeat
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.service.backend import TpuName

LEASE_TIMEOUTS = 2
"""So many lease timeouts without a renewal: in the second one the VM's switch has had its turn."""


@dataclass
class Standing:
    """The TPUs whose lease has lapsed, as the passes before have seen them.

    :param earlier: what the newest pass has noted.
    :ivar noted: what this pass notes.
    """

    earlier: Sequence[StandingTpu] = ()
    noted: dict[TpuName, StandingTpu] = field(default_factory=dict)

    def since(self, reservation: OpenReservation, record: AttemptRecord) -> datetime | None:
        """Return since when nothing moves on a TPU whose lease lapsed; None: somebody may come.

        A job's progress is that of worker 0. One that reports none gets one lease timeout, like one
        that hangs.
        """
        timeout = _lease_timeout(reservation)
        if timeout is None or not _is_lapsed(record, LEASE_TIMEOUTS * timeout):
            return None
        now = datetime.now(UTC)
        beat = read_heartbeat(record, 0)
        step = beat.progress.step if beat and beat.progress else None
        job_id = beat.job_id if beat else None
        name = record.name
        fresh = StandingTpu(
            name=name.resource_id, zone=name.zone, job_id=job_id, step=step, since=now
        )
        same = [one for one in self.earlier if one.model_copy(update={"since": now}) == fresh]
        self.noted[name] = same[0] if same else fresh
        since = self.noted[name].since
        return since if now - since >= timeout else None

    def to_keep(self, answered: AbstractSet[str]) -> list[StandingTpu]:
        """Return what the next pass has to know.

        :param answered: zones that this pass could look at; of the others the memory stays.
        """
        unseen = [one for one in self.earlier if one.zone not in answered]
        return [*unseen, *self.noted.values()]


def _lease_timeout(reservation: OpenReservation) -> timedelta | None:
    """Return ``tpu.lease_timeout_seconds``; None if a later program cannot read it any more."""
    try:
        return timedelta(seconds=reservation.config.tpu.lease_timeout_seconds)
    except (ConfigError, FileNotFoundError):
        return None


def _is_lapsed(record: AttemptRecord, after: timedelta) -> bool:
    try:
        lease = Lease.load_or_none(record.layout.lease)
    except FormatError:
        lease = None
    moments = [mark.time for mark in record.marks.values()]
    newest = max([lease.renewed if lease else record.attempt.created, *moments])
    return datetime.now(UTC) - newest > after
