"""Computes what a reservation generation cost, at most, and what its time was spent on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pipeline_store import uris
from pipeline_store.formats import (
    AgentHello,
    AttemptBill,
    AttemptEvent,
    CheckpointManifest,
    FormatError,
    JobSpec,
    JobStatus,
    JobUsage,
    Ledger,
    LedgerEntry,
    Released,
    Reservation,
    SpentOn,
    StoredFile,
)
from pipeline_store.layout import ReservationLayout, RunLayout
from tpu_lifecycle.records.attempt_time import Facts, Piece, billed, pieces, unbilled, waits
from tpu_lifecycle.records.attempts import (
    GIVEN_UP,
    AttemptRecord,
    ahead,
    load_attempt,
    load_attempts,
    read_heartbeat,
)
from tpu_lifecycle.records.budgets import chip_count, node_created, rented_since
from tpu_lifecycle.records.reservation import OpenReservation

PROBE = "training.probe"
"""Entry point of the job that measures a model on labeled tasks."""

F = TypeVar("F", bound=StoredFile)
Told = TypeVar("Told", AgentHello, JobUsage)


def build_ledger(
    reservation: Reservation, layout: ReservationLayout, records: Sequence[AttemptRecord]
) -> Ledger:
    """Return the bill of a generation; attempts that are not gone are billed up to now.

    A TPU is billed while it is READY. Counted here is the time from the node's creation, or when
    it was seen READY, to the moment its deletion was confirmed: a little more, and much more if it
    was taken while nothing polled it, but never less. An attempt that never got a node costs
    nothing. The time spent in steps is what worker 0 last reported.
    """
    released = _readable(Released, layout.released)
    before = [None, *records]
    entries = [
        _entry(reservation, earlier, record, released, records[number:])
        for number, (earlier, record) in enumerate(zip(before, records, strict=False), start=1)
    ]
    return Ledger(**_terms(reservation), entries=entries)


def timelines(
    reservation: Reservation, layout: ReservationLayout, records: Sequence[AttemptRecord]
) -> list[tuple[list[Piece], list[Piece]]]:
    """Return the pieces of each attempt's time: the unbilled ones, then the billed ones.

    Their lengths sum up to the times of :func:`build_ledger`. Only the split into kept and lost
    steps may differ: the step from which training resumed is not looked up here.
    """
    released = _readable(Released, layout.released)
    facts = [
        _facts(reservation, earlier, record, released)
        for earlier, record in zip([None, *records], records, strict=False)
    ]
    return [(waits(one), pieces(one)) for one in facts]


def so_far(reservation: Reservation, layout: ReservationLayout) -> Ledger:
    """Return a generation's ledger, or its preliminary content if it is not written yet.

    For an attempt that is not confirmed gone, an existing bill counts: the reaper's.

    :raises FormatError: a file that this needs is damaged.
    """
    if (ledger := Ledger.load_or_none(layout.ledger)) is not None:
        return ledger
    records = load_attempts(layout)
    ledger = build_ledger(reservation, layout, records)
    entries = []
    for record, entry in zip(records, ledger.entries, strict=True):
        is_gone = AttemptEvent.GONE in record.marks
        bill = None if is_gone else _readable(AttemptBill, record.layout.bill)
        entries.append(bill.entries[0] if bill else entry)
    return ledger.model_copy(update={"entries": entries})


def write_bill(reservation: OpenReservation, record: AttemptRecord, *, reaped: str = "") -> None:
    """Write an attempt's bill: its future entry in the ledger.

    :param reaped: why the reaper has deleted its TPU, which is not confirmed gone: then the bill
        goes up to now, and an existing bill stays.
    """
    try:
        earlier = load_attempt(reservation.layout, record.number - 1)
    except FormatError:
        earlier = None
    released = _readable(Released, reservation.layout.released)
    entry = _entry(reservation.record, earlier, record, released)
    if reaped:
        entry = entry.model_copy(update={"outcome": f"reaped: {reaped}"})
    bill = AttemptBill(**_terms(reservation.record), entries=[entry])
    if reaped:
        bill.create(record.layout.bill)
    else:
        bill.write(record.layout.bill)


def _terms(reservation: Reservation) -> dict[str, Any]:
    return {name: getattr(reservation, name) for name in Ledger.model_fields.keys() - {"entries"}}


def _entry(
    reservation: Reservation,
    earlier: AttemptRecord | None,
    record: AttemptRecord,
    released: Released | None,
    later: Sequence[AttemptRecord] = (),
) -> LedgerEntry:
    facts = _facts(reservation, earlier, record, released)
    facts = replace(facts, resumed=_resumed(record, facts, later))
    ready = record.marks.get(AttemptEvent.READY)
    lost = record.marks.get(AttemptEvent.LOST)
    chips, spent = chip_count(reservation), billed(facts)
    seconds = max(0.0, (facts.gone - facts.rented).total_seconds()) if facts.rented else 0.0
    stepping = sum(job.stepping_seconds for job in facts.jobs)
    return LedgerEntry(
        generation=record.attempt.generation,
        attempt=record.number,
        zone=record.attempt.zone,
        accelerator_type=reservation.accelerator_type,
        chips=chips,
        created=record.attempt.created,
        ready=ready.time if ready else None,
        gone=facts.gone,
        outcome=record.outcome,
        billed_seconds=seconds,
        chip_seconds=seconds * chips,
        cost=seconds * chips / 3600 * reservation.price_per_chip_hour,
        ready_to_first_step_seconds=_to_first_step(ready.time if ready else None, facts.jobs),
        stepping_seconds=stepping,
        idle_share=min(1.0, max(0.0, 1 - stepping / seconds)) if seconds else None,
        seconds=spent,
        unbilled_seconds=unbilled(facts),
        loss=lost.cause if lost else "",
    )


def _facts(
    reservation: Reservation,
    earlier: AttemptRecord | None,
    record: AttemptRecord,
    released: Released | None,
) -> Facts:
    gone = record.marks.get(AttemptEvent.GONE)
    ends = [record.marks[event].time for event in GIVEN_UP & record.marks.keys()]
    ends += [released.released] if released else []
    beat = read_heartbeat(record, 0)
    hello = _readable(AgentHello, record.layout.hello(0))
    hello = hello if hello and hello.token == record.attempt.token else None
    # The times that the VM reports are by its own clock.
    late = -ahead(record, hello, beat)
    since, after = _before(reservation, earlier, record)
    return Facts(
        since=since,
        after=after,
        created=record.attempt.created,
        rented=rented_since(record),
        node_created=node_created(record),
        given_up=min(ends, default=None),
        is_lost=AttemptEvent.LOST in record.marks,
        gone=gone.time if gone else datetime.now(UTC),
        hello=_moved(hello, late) if hello else None,
        beat=beat.time + late if beat else None,
        jobs=[_moved(job, late) for job in _jobs(record, beat.usage if beat else [])],
        probes=frozenset(_probes(record)),
    )


def _resumed(record: AttemptRecord, facts: Facts, later: Sequence[AttemptRecord]) -> dict[str, int]:
    """Return the step of the checkpoint from which training resumes, by job that was cut off.

    A later attempt reports the step from which it resumed. Until one has, it is the newest step
    that this attempt committed: its own trainer may not have lived to report it.
    """
    steps: dict[str, int] = {}
    for job in facts.jobs:
        if job.ended is None and job.begun_at is not None and facts.given_up is not None:
            begun = _begun_later(job.job_id, later)
            step = _committed(record) if begun is None else begun
            if step is not None:
                steps[job.job_id] = step
    return steps


def _begun_later(job_id: str, later: Iterable[AttemptRecord]) -> int | None:
    for record in later:
        beat = read_heartbeat(record, 0)
        for job in _jobs(record, beat.usage if beat else []):
            if job.job_id == job_id and job.begun_at is not None:
                return job.begun_at
    return None


def _committed(record: AttemptRecord) -> int | None:
    """Return the newest step among an attempt's committed checkpoints that still exist."""
    run = RunLayout(record.layout.root.rsplit("/", 4)[0])
    for uri in sorted(uris.list_files(run.training.checkpoints), reverse=True):
        manifest = _readable(CheckpointManifest, uri)
        if manifest and manifest.holder_token == record.attempt.token:
            return manifest.step
    return None


def _moved(told: Told, by: timedelta) -> Told:
    """Return a VM's report with all of its times shifted."""
    moments = {name: value for name, value in told if isinstance(value, datetime)}
    return told.model_copy(update={name: moment + by for name, moment in moments.items()})


def _before(
    reservation: Reservation, earlier: AttemptRecord | None, record: AttemptRecord
) -> tuple[datetime, SpentOn]:
    """Return when the previous attempt was over, and what the time since then was spent on."""
    if earlier is None:
        return reservation.created, SpentOn.QUEUE
    ends = [mark.time for event, mark in earlier.marks.items() if event in GIVEN_UP]
    since = min(ends, default=record.attempt.created)
    if AttemptEvent.LOST in earlier.marks:
        return since, SpentOn.RECOVERY
    is_elsewhere = earlier.attempt.zone != record.attempt.zone
    return since, SpentOn.ZONE_CHANGE if is_elsewhere else SpentOn.QUEUE


def _jobs(record: AttemptRecord, told: Iterable[JobUsage]) -> list[JobUsage]:
    """Return worker 0's last reports of its jobs: a job's status supersedes earlier heartbeats."""
    jobs = {job.job_id: job for job in told}
    for job_id in _job_ids(record):
        status = _readable(JobStatus, record.layout.status(0, job_id))
        if status and status.usage and status.token == record.attempt.token:
            jobs[job_id] = status.usage
    return sorted(jobs.values(), key=lambda job: job.started)


def _probes(record: AttemptRecord) -> Iterable[str]:
    for job_id in _job_ids(record):
        spec = _readable(JobSpec, record.layout.job(job_id))
        if spec and spec.entry_point == PROBE:
            yield job_id


def _job_ids(record: AttemptRecord) -> list[str]:
    names = [uri.rpartition("/")[2] for uri in uris.list_files(record.layout.jobs)]
    return [name.removesuffix(".json") for name in names if name.endswith(".json")]


def _readable(kind: type[F], uri: str) -> F | None:
    """Return a file, or None when it is missing or damaged, which must not prevent the ledger."""
    try:
        return kind.load_or_none(uri)
    except FormatError:
        return None


def _to_first_step(ready: datetime | None, usage: Sequence[JobUsage]) -> float | None:
    first = min((job.first_step for job in usage if job.first_step), default=None)
    if ready is None or first is None:
        return None
    # Two clocks: a difference may remain after the VM's times were corrected.
    return max(0.0, (first - ready).total_seconds())


def summary(ledger: Ledger) -> list[str]:
    """Return a line for every attempt that cost something."""
    return [
        _summary_line(entry, ledger.currency) for entry in ledger.entries if entry.billed_seconds
    ]


def _summary_line(entry: LedgerEntry, currency: str) -> str:
    first = entry.ready_to_first_step_seconds
    started = "no step" if first is None else f"first step {first:.0f} s after READY"
    idle = f"{entry.idle_share:.0%} idle" if entry.idle_share is not None else "idle share unknown"
    return (
        f"a{entry.attempt} in {entry.zone}: {entry.chips} chip(s) for {entry.billed_seconds:.0f} "
        f"s, {started}, {entry.stepping_seconds:.0f} s in steps ({idle}), at most {entry.cost:.2f} "
        f"{currency}, {entry.outcome}"
    )


def idle_share(ledger: Ledger) -> float | None:
    """Return the share of the billed chip-seconds without a step; None when nothing was billed."""
    billed, _ = total(ledger)
    stepping = sum(entry.stepping_seconds * entry.chips for entry in ledger.entries)
    return min(1.0, max(0.0, 1 - stepping / billed)) if billed else None


def total(ledger: Ledger) -> tuple[float, float]:
    """Return chip-seconds and cost of all attempts together."""
    return (
        sum(entry.chip_seconds for entry in ledger.entries),
        sum(entry.cost for entry in ledger.entries),
    )


def timeline(records: Iterable[AttemptRecord]) -> list[str]:
    """Return one line for everything that happened to the attempts, oldest first."""
    lines: list[tuple[datetime, str]] = []
    for record in records:
        lines.append((record.attempt.created, f"a{record.number} asked for in {record.name.zone}"))
        for event, mark in record.marks.items():
            if event is AttemptEvent.ASKED:
                continue
            reason = f": {mark.reason}" if mark.reason else ""
            lines.append((mark.time, f"a{record.number} {event}{reason}"))
    return [f"{time:%F %T} UTC  {text}" for time, text in sorted(lines)]
