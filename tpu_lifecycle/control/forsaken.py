"""Distinguishes an unattended READY TPU from one whose Airflow is only away for a while.

The TPU VM's own switch deletes an unattended TPU, unless it may not or cannot; the rules here are
the same. A pass of the reaper sees only one moment, so each pass records how far the jobs were.
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
"""Lease timeouts without a renewal: in the second one the VM's switch has had its turn."""

LEAST_LOOKS = 3
"""Passes that must agree, however long ago the first one was: passes in between may have failed."""


@dataclass
class Standing:
    """The TPUs whose lease has lapsed, as seen by this pass and the previous ones.

    :param earlier: records of the previous pass.
    :ivar noted: records of this pass.
    """

    earlier: Sequence[StandingTpu] = ()
    noted: dict[TpuName, StandingTpu] = field(default_factory=dict)

    def since(self, reservation: OpenReservation, record: AttemptRecord) -> datetime | None:
        """Return since when a TPU with a lapsed lease makes no progress; None: it may be in use.

        Progress is what worker 0 reports of its job: the step, the phase, and the count within the
        phase, such as batches scored. A worker that reports nothing gets one lease timeout, like
        one whose job hangs.
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
        """Return the records that the next pass needs.

        :param answered: zones that this pass could list; for all others the earlier records stay.
        """
        unseen = [one for one in self.earlier if one.zone not in answered]
        return [*unseen, *self.noted.values()]


def _lease_timeout(reservation: OpenReservation) -> timedelta | None:
    """Return ``tpu.lease_timeout_seconds``; None if this version cannot read the configuration."""
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
