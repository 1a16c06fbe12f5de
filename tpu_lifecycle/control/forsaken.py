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

LEAST_LOOKS = 3
"""So many passes must agree, however long ago the first one was: passes may have failed between."""


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

        How a job moves is what worker 0 says of it: its step, its phase, and the count of what is
        done within that, such as batches that were scored. One that says nothing gets one lease
        timeout, like one that hangs.
        """
        timeout = _lease_timeout(reservation)
        if timeout is None or not _is_lapsed(record, LEASE_TIMEOUTS * timeout):
            return None
        now = datetime.now(UTC)
        beat = read_heartbeat(record, 0)
        name = record.name
        fresh = StandingTpu(
            name=name.resource_id,
            zone=name.zone,
            job_id=beat.job_id if beat else None,
            step=beat.progress.step if beat and beat.progress else None,
            phase=beat.phase if beat else None,
            since=now,
        )
        unlike = {"since": now, "looks": 1}
        same = [one for one in self.earlier if one.model_copy(update=unlike) == fresh]
        noted = same[0].model_copy(update={"looks": same[0].looks + 1}) if same else fresh
        self.noted[name] = noted
        is_over = now - noted.since >= timeout and noted.looks >= LEAST_LOOKS
        return noted.since if is_over else None

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
