"""What the TPUs of a run were and cost, for its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from pipeline_store.formats import AttemptEvent, Ledger, LedgerEntry, Reservation
from pipeline_store.layout import ReservationLayout, RunLayout
from tpu_lifecycle.records import ledger
from tpu_lifecycle.records.attempts import AttemptRecord, load_attempts
from tpu_lifecycle.records.budgets import chip_count, chip_seconds, rented_since


@dataclass(frozen=True)
class Use:
    """What one attempt at a TPU was and cost, at most, so far."""

    tpu: int
    """Which of the run's TPUs, counted from 0."""
    name: str
    zone: str
    accelerator: str
    chips: int
    state: str
    hours: float
    cost: float
    rented_since: datetime | None = None
    """Of a TPU that is not confirmed gone; none: there is none, or none yet."""


@dataclass(frozen=True)
class Spending:
    """All attempts of a run."""

    uses: list[Use]
    chip_hours: float
    cost: float
    currency: str

    @property
    def rented(self) -> list[Use]:
        """The TPUs that are rented now."""
        return [use for use in self.uses if use.rented_since is not None]

    @property
    def has_several(self) -> bool:
        """Whether the run had more than one TPU at a time."""
        return any(use.tpu for use in self.uses)


def spending(folders: Iterable[RunLayout]) -> Spending | None:
    """Return what was rented for some folders: by the ledgers, and so far where there is none yet.

    :param folders: a run's own, and those of its further TPUs.
    """
    uses: list[Use] = []
    hours = cost = 0.0
    currency = ""
    for tpu, reservation, place in _reservations(folders):
        bill = Ledger.load_or_none(place.ledger)
        if bill is not None:
            seconds, price = ledger.total(bill)
            hours, cost = hours + seconds / 3600, cost + price
            uses += [_billed(tpu, entry) for entry in bill.entries]
        else:
            so_far = [_open(tpu, reservation, record) for record in load_attempts(place)]
            hours += sum(use.hours for use in so_far)
            cost += sum(use.cost for use in so_far)
            uses += so_far
        currency = reservation.currency
    return Spending(uses, hours, cost, currency) if currency else None


def _reservations(
    folders: Iterable[RunLayout],
) -> Iterator[tuple[int, Reservation, ReservationLayout]]:
    for tpu, folder in enumerate(folders):
        generation = 1
        while (
            found := Reservation.load_or_none((place := folder.reservation(generation)).record)
        ) is not None:
            yield tpu, found, place
            generation += 1


def _billed(tpu: int, entry: LedgerEntry) -> Use:
    return Use(
        tpu=tpu,
        name=f"g{entry.generation}-a{entry.attempt}",
        zone=entry.zone,
        accelerator=entry.accelerator_type,
        chips=entry.chips,
        state=f"{entry.outcome}; gone",
        hours=entry.chip_seconds / 3600,
        cost=entry.cost,
    )


def _open(tpu: int, reservation: Reservation, record: AttemptRecord) -> Use:
    hours = chip_seconds(reservation, record) / 3600
    newest = max(record.marks.values(), key=lambda mark: mark.time, default=None)
    return Use(
        tpu=tpu,
        name=f"g{record.attempt.generation}-a{record.number}",
        zone=record.attempt.zone,
        accelerator=reservation.accelerator_type,
        chips=chip_count(reservation),
        state=str(newest.event) if newest else "not asked for yet",
        hours=hours,
        cost=hours * reservation.price_per_chip_hour,
        rented_since=None if AttemptEvent.GONE in record.marks else rented_since(record),
    )
