"""The lease of a lineage: the one run that may continue it, and who comes next.

Two runs that start from the same model would each throw the other's work away. So a run takes the
lineage's lease before it plans what to train on, and releases it when it has ended. The lease is
changed by compare-and-set only. It is void once its holder's run has ended without releasing it;
a waiting run finds that out and takes it. Expiry is shown but frees nothing: a wrong clock must not
end a live run.

A waiting run leaves a ticket and renews it with each poll. Among waiting runs, the smallest
partition comes first, and a run of a backfill also waits for the backfill's older partitions that
are still being prepared: so a backfill trains in order. Tickets only say who is next; the
compare-and-set alone ensures that two runs never have the lease at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from model_registry.errors import LeaseLostError, RegistryError
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import FormatError, LineageLease, RunRecord, WaitingTicket
from pipeline_store.layout import LineageLayout

STALE_POLLS = 5
"""Polls that a waiting run may miss before its ticket no longer counts."""

LEAST_SECONDS = 60.0
"""A ticket counts for at least this long: a triggerer takes some seconds to restart."""

SPARE = timedelta(days=1)
"""Spare time of a lease beyond all that its run may take: for retries, and pauses of the DAG."""


@dataclass(frozen=True)
class Standing:
    """Whether a run has the lease, and if not, what it waits for."""

    is_held: bool
    lease: LineageLease | None
    """The current lease: the run's own if it is held; None: there never was one."""
    ahead: list[WaitingTicket]
    """Waiting runs that come first."""
    waits_since: datetime | None = None
    """When the run began to wait; None: it does not wait."""
    preparing: list[str] = field(default_factory=list)
    """Older partitions of the same backfill whose runs are under way and do not wait yet."""

    def describe(self) -> str:
        """Return who has the lineage, and who comes first, as a sentence."""
        parts = [describe(self.lease)]
        if self.ahead:
            names = ", ".join(ticket.partition for ticket in self.ahead)
            parts.append(f"{len(self.ahead)} waiting run(s) come first: {names}")
        if self.preparing:
            names = ", ".join(self.preparing)
            parts.append(f"older partitions of the backfill are still being prepared: {names}")
        return "; ".join(parts)


def describe(lease: LineageLease | None) -> str:
    """Return who has the lineage as a sentence without its final period."""
    if lease is None:
        return "no run has ever held the lineage"
    who = f"run {lease.run_id} of {lease.dag_id}, partition {lease.partition}"
    if lease.run_key is None:
        note = f" ({lease.note})" if lease.note else ""
        return f"no run holds the lineage; the last was {who}{note}"
    since, end = _text(lease.acquired), _text(lease.expires)
    held = f"the lineage is held by {who} (run key {lease.run_key}) since {since} UTC"
    return f"{held}; its lease expires at {end} UTC"


def expiry(config: PipelineConfig, now: datetime) -> datetime:
    """Return until when a run of this configuration may need the lineage, not counting approval."""
    tpu = config.tpu
    seconds = (tpu.queue_timeout_seconds + tpu.boot_timeout_seconds) * len(tpu.zones)
    return now + timedelta(hours=config.budget.max_hours, seconds=seconds) + SPARE


def read(lineage: LineageLayout) -> LineageLease | None:
    """Return the lease as it is stored, released or not; None: there never was one.

    :raises RegistryError: it is damaged; the message says what to do.
    """
    return _read(lineage)[0]


def holder(lineage: LineageLayout) -> LineageLease | None:
    """Return the lease if a run holds it and it has not expired.

    :raises RegistryError: it is damaged.
    """
    lease = read(lineage)
    if lease is None or lease.run_key is None or lease.expires <= datetime.now(UTC):
        return None
    return lease


def waiting(lineage: LineageLayout, *, problems: list[str] | None = None) -> list[WaitingTicket]:
    """Return the tickets that count, in the order in which their runs get the lease.

    :param problems: gets a line for each damaged ticket, which does not count.
    """
    now, found = datetime.now(UTC), []
    for uri in uris.list_files(lineage.waiting):
        ticket = _ticket(uri, problems)
        if ticket is not None and not _is_stale(ticket, now):
            found.append(ticket)
    return sorted(found, key=_place)


def acquire(
    lineage: LineageLayout,
    record: RunRecord,
    *,
    expires: datetime,
    poll_seconds: float,
    has_ended: Callable[[LineageLease], bool],
    preparing: Callable[[], list[str]] = list,
) -> Standing:
    """Take the lease if it is free and no other run comes first; else leave a ticket. Never waits.

    A run that has the lease already keeps it, with the new expiry: doing it again is no error.

    :param record: the run that wants it.
    :param expires: until when the run should be done with it; shown.
    :param poll_seconds: how often the run will poll; its ticket stops counting when it does not.
    :param has_ended: whether the DAG run of a lease's holder has ended; called only when this run
        is next and the holder has not released the lease.
    :param preparing: partitions that come first though no run waits for them yet; called only when
        the lease could be taken.
    :raises RegistryError: the lease is damaged.
    """
    while True:
        lease, version = _read(lineage)
        now = datetime.now(UTC)
        is_own = lease is not None and lease.run_key == record.run_key
        if not is_own:
            ticket = _renew(lineage, record, poll_seconds, now)
            holder_key = lease.run_key if lease is not None else None
            ahead = [
                other
                for other in waiting(lineage)
                if _place(other) < _place(ticket) and other.run_key != holder_key
            ]
            # Not by the clock: this machine's may be wrong, and a live run must continue.
            is_free = lease is None or lease.run_key is None
            if ahead or not (is_free or (lease is not None and has_ended(lease))):
                return Standing(False, lease, ahead, waits_since=ticket.since)
            if older := preparing():
                return Standing(False, lease, [], waits_since=ticket.since, preparing=older)
        wanted = LineageLease(
            sequence=lease.sequence + 1 if lease else 1,
            run_key=record.run_key,
            dag_id=record.dag_id,
            run_id=record.run_id,
            partition=record.partition,
            acquired=lease.acquired if lease is not None and is_own else now,
            expires=expires,
        )
        try:
            uris.compare_and_set(lineage.lease, wanted.to_bytes(), version)
        except uris.VersionConflictError:
            continue
        leave(lineage, record.run_key)
        _sweep(lineage)
        return Standing(True, wanted, [])


def leave(lineage: LineageLayout, run_key: str) -> None:
    """Stop waiting: remove the run's ticket. A run that still waits leaves a new one."""
    uris.delete(lineage.ticket(run_key))


def require_held(lineage: LineageLayout, run_key: str) -> LineageLease:
    """Return the lease of a run that must have it.

    An expired lease still belongs to its run.

    :raises LeaseLostError: the run does not have it.
    """
    lease = read(lineage)
    if lease is None or lease.run_key != run_key:
        raise _lost(lineage, run_key, lease)
    return lease


def extend(lineage: LineageLayout, run_key: str, until: datetime) -> LineageLease:
    """Extend a run's lease to expire no earlier than this.

    :raises LeaseLostError: the run does not have it.
    :raises RegistryError: it is damaged.
    """

    def decide(lease: LineageLease | None) -> LineageLease:
        if lease is None or lease.run_key != run_key:
            raise _lost(lineage, run_key, lease)
        if lease.expires >= until:
            return lease
        return lease.model_copy(update={"sequence": lease.sequence + 1, "expires": until})

    try:
        return LineageLease.update(lineage.lease, decide)
    except FormatError as error:
        raise _damaged(error) from error


def release(lineage: LineageLayout, run_key: str) -> bool:
    """Release the lease; return whether it was released. Never touches another run's lease.

    If it changes meanwhile, it is left as it is: only the run itself, by claiming it again, can
    have changed it.
    """
    lease, version = _read(lineage)
    if lease is None or lease.run_key != run_key:
        return False
    wanted = lease.model_copy(update={"sequence": lease.sequence + 1, "run_key": None})
    try:
        uris.compare_and_set(lineage.lease, wanted.to_bytes(), version)
    except uris.VersionConflictError:
        return False
    return True


def break_lease(lineage: LineageLayout, reason: str) -> LineageLease | None:
    """Take the lease away from its holder, by decision of a person; a damaged one too.

    The run that had it fails when it plans or promotes.

    :returns: the lease that was broken; None if there was none, or none that could be read.
    """
    while True:
        found = uris.read_versioned(lineage.lease)
        if found is None:
            return None
        data, version = found
        now = datetime.now(UTC)
        try:
            lease = LineageLease.parse(data, lineage.lease)
        except FormatError:
            wanted = LineageLease(
                sequence=1,
                run_key=None,
                dag_id="",
                run_id="",
                partition="",
                acquired=now,
                expires=now,
                note=reason,
            )
            broken = None
        else:
            if lease.run_key is None:
                return None
            change = {"sequence": lease.sequence + 1, "run_key": None, "note": reason}
            wanted, broken = lease.model_copy(update=change), lease
        try:
            uris.compare_and_set(lineage.lease, wanted.to_bytes(), version)
            return broken
        except uris.VersionConflictError:
            continue


def _read(lineage: LineageLayout) -> tuple[LineageLease | None, str | None]:
    found = uris.read_versioned(lineage.lease)
    if found is None:
        return None, None
    try:
        return LineageLease.parse(found[0], lineage.lease), found[1]
    except FormatError as error:
        raise _damaged(error) from error


def _damaged(error: FormatError) -> RegistryError:
    return RegistryError(
        f"{error} Nobody can tell who may continue the lineage. Make sure that no run of it is "
        "training, then: python -m model_registry lease --break --reason TEXT"
    )


def _lost(lineage: LineageLayout, run_key: str, lease: LineageLease | None) -> LeaseLostError:
    return LeaseLostError(
        f"Run {run_key} may not continue the lineage: {describe(lease)} ({lineage.lease}). If the "
        "model in use is still the one that this run started from, clear its task `claim` with "
        "everything after it; else trigger a new run."
    )


def _renew(
    lineage: LineageLayout, record: RunRecord, poll_seconds: float, now: datetime
) -> WaitingTicket:
    uri = lineage.ticket(record.run_key)
    earlier = _ticket(uri)
    ticket = WaitingTicket(
        run_key=record.run_key,
        dag_id=record.dag_id,
        run_id=record.run_id,
        partition=record.partition,
        since=earlier.since if earlier else now,
        renewed=now,
        valid_seconds=max(LEAST_SECONDS, STALE_POLLS * poll_seconds),
    )
    ticket.write(uri)
    return ticket


def _ticket(uri: str, problems: list[str] | None = None) -> WaitingTicket | None:
    """Return a ticket; None if it is missing, or damaged: its owner rewrites it."""
    try:
        return WaitingTicket.load_or_none(uri)
    except FormatError as error:
        if problems is not None:
            problems.append(str(error))
        return None


def _is_stale(ticket: WaitingTicket, now: datetime) -> bool:
    # One from the future is from a machine with a wrong clock: it would count until then.
    return abs(now - ticket.renewed) > timedelta(seconds=ticket.valid_seconds)


def _place(ticket: WaitingTicket) -> tuple[str, datetime, str]:
    return ticket.partition, ticket.since, ticket.run_key


def _sweep(lineage: LineageLayout) -> None:
    """Delete the tickets of runs that were killed while they waited."""
    now = datetime.now(UTC)
    for uri in uris.list_files(lineage.waiting):
        ticket = _ticket(uri)
        if ticket is None or _is_stale(ticket, now):
            uris.delete(uri)


def _text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%F %T}"
