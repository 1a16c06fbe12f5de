"""What a reservation generation cost, as an upper estimate."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pipeline_config.rules import chips
from pipeline_store.formats import AttemptEvent, Ledger, LedgerEntry
from tpu_lifecycle.attempts import AttemptRecord
from tpu_lifecycle.reservation import OpenReservation


def build_ledger(reservation: OpenReservation, records: Iterable[AttemptRecord]) -> Ledger:
    """Return the bill of a generation whose attempts are all gone.

    A TPU is billed while it is READY. Counted here is the time from the node's creation, or when
    it was seen READY, to the moment its deletion was confirmed: a little more, never less. An
    attempt that never got a node costs nothing.
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
    starts = [mark.node_created for mark in record.marks.values() if mark.node_created]
    starts += [ready.time] if ready else []
    seconds = max(0.0, (gone.time - min(starts)).total_seconds()) if starts else 0.0
    count = chips(reservation.record.accelerator_type)
    return LedgerEntry(
        generation=record.attempt.generation,
        attempt=record.number,
        zone=record.attempt.zone,
        accelerator_type=reservation.record.accelerator_type,
        chips=count,
        created=record.attempt.created,
        ready=ready.time if ready else None,
        gone=gone.time,
        outcome=record.outcome,
        billed_seconds=seconds,
        chip_seconds=seconds * count,
        cost=seconds * count / 3600 * reservation.record.price_per_chip_hour,
    )


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
