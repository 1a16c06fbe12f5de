"""What a reservation generation cost, as an upper estimate."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pipeline_store.formats import (
    AttemptEvent,
    JobUsage,
    Ledger,
    LedgerEntry,
)
from tpu_lifecycle.records.attempts import AttemptRecord, read_heartbeat
from tpu_lifecycle.records.budgets import chip_count, chip_seconds
from tpu_lifecycle.records.reservation import OpenReservation


def build_ledger(reservation: OpenReservation, records: Iterable[AttemptRecord]) -> Ledger:
    """Return the bill of a generation whose attempts are all gone.

    A TPU is billed while it is READY. Counted here is the time from the node's creation, or when
    it was seen READY, to the moment its deletion was confirmed: a little more, and much more if it
    was taken while nobody looked, but never less. An attempt that never got a node costs nothing.
    What of it was spent in steps is what worker 0 said in its last heartbeat.
    """
    terms = reservation.record
    return Ledger(
        run_key=reservation.record.run_key,
        generation=reservation.record.generation,
        entries=[_entry(reservation, record) for record in records],
        price_per_chip_hour=terms.price_per_chip_hour,
        currency=terms.currency,
        price_date=terms.price_date,
    )


def _entry(reservation: OpenReservation, record: AttemptRecord) -> LedgerEntry:
    gone = record.marks[AttemptEvent.GONE]
    ready = record.marks.get(AttemptEvent.READY)
    chips, used = chip_count(reservation.record), chip_seconds(reservation.record, record)
    beat = read_heartbeat(record, 0)
    usage = beat.usage if beat is not None else []
    stepping = sum(job.stepping_seconds for job in usage)
    billed = used / chips
    return LedgerEntry(
        generation=record.attempt.generation,
        attempt=record.number,
        zone=record.attempt.zone,
        accelerator_type=reservation.record.accelerator_type,
        chips=chips,
        created=record.attempt.created,
        ready=ready.time if ready else None,
        gone=gone.time,
        outcome=record.outcome,
        billed_seconds=billed,
        chip_seconds=used,
        cost=used / 3600 * reservation.record.price_per_chip_hour,
        ready_to_first_step_seconds=_to_first_step(ready.time if ready else None, usage),
        stepping_seconds=stepping,
        idle_share=min(1.0, max(0.0, 1 - stepping / billed)) if billed else None,
    )


def _to_first_step(ready: datetime | None, usage: list[JobUsage]) -> float | None:
    first = min((job.first_step for job in usage if job.first_step), default=None)
    if ready is None or first is None:
        return None
    # Two clocks: the VM's may be a little behind ours.
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
