"""Collects the TPUs of one run or of all runs for their pages, with their cost and use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time

from pages.charts import ShareBar, share_bar
from pages.reading import Reader
from pipeline_store.formats import (
    AttemptEvent,
    Ledger,
    LedgerEntry,
    Reservation,
    RunRecord,
    Seconds,
    SpentOn,
)
from pipeline_store.formats.spent import added
from pipeline_store.layout import ReservationLayout, RunLayout, StoreLayout
from tpu_lifecycle.records.attempts import AttemptRecord, load_attempts
from tpu_lifecycle.records.billed import Spent, default_since, may_be_rented, named, spent_since
from tpu_lifecycle.records.budgets import rented_since
from tpu_lifecycle.records.ledger import so_far
from tpu_lifecycle.records.spending import LineageSpending, by_lineage

_STYLES = {
    SpentOn.STEP: "step",
    SpentOn.EVALUATION: "score",
    SpentOn.PROBE: "score",
    SpentOn.DATA_LOADING: "wait",
    SpentOn.SAVE: "wait",
    SpentOn.JOB_WAIT: "wait",
    SpentOn.MEETING: "wait",
    SpentOn.OTHER: "wait",
    SpentOn.IDLE: "wait",
    SpentOn.DELETION: "wait",
    SpentOn.LOST_STEPS: "lost",
    SpentOn.RECOVERY: "lost",
    SpentOn.STALL: "lost",
    SpentOn.SILENCE: "lost",
    SpentOn.UNATTRIBUTED: "unknown",
}
"""Classes of the style sheet; times that are not listed are part of a start."""


@dataclass(frozen=True)
class Use:
    """One attempt at a TPU, with its cost so far, at most."""

    tpu: int
    """Which of the run's TPUs, counted from 0."""
    name: str
    zone: str
    accelerator: str
    chips: int
    state: str
    hours: float
    cost: float
    seconds: Seconds
    """Chip-seconds by use."""
    rented_since: datetime | None = None
    """Since when a TPU that is not confirmed gone is rented; None: there is none, or none yet."""


@dataclass(frozen=True)
class Spending:
    """All attempts of a run."""

    uses: list[Use]
    currency: str

    @property
    def chip_hours(self) -> float:
        """All chip-hours."""
        return sum(use.hours for use in self.uses)

    @property
    def cost(self) -> float:
        """The total cost, at most."""
        return sum(use.cost for use in self.uses)

    @property
    def bar(self) -> ShareBar | None:
        """A chart of the use of the time; None: nothing was billed."""
        return spent_bar(added(use.seconds for use in self.uses))

    @property
    def rented(self) -> list[Use]:
        """The TPUs that are rented now."""
        return [use for use in self.uses if use.rented_since is not None]

    @property
    def has_several(self) -> bool:
        """Whether the run had more than one TPU at a time."""
        return any(use.tpu for use in self.uses)


def spending(folders: Iterable[RunLayout]) -> Spending | None:
    """Return the TPUs rented for some folders, from the ledgers, or so far if there is none yet.

    :param folders: a run's own folder, and those of its further TPUs.
    """
    uses: list[Use] = []
    currency = ""
    for tpu, reservation, place in _reservations(folders):
        bill = Ledger.load_or_none(place.ledger)
        if bill is not None:
            uses += [_use(tpu, entry, f"{entry.outcome}; gone") for entry in bill.entries]
        else:
            attempts = zip(load_attempts(place), so_far(reservation, place).entries, strict=False)
            uses += [_open(tpu, entry, record) for record, entry in attempts]
        currency = reservation.currency
    return Spending(uses, currency) if currency else None


@dataclass
class SpendingView:
    """The cost of the TPUs of all runs of the last weeks."""

    since: datetime
    lineages: list[LineageSpending]
    rented: list[tuple[RunRecord | None, Spent]] = field(default_factory=list)
    """TPUs that are rented now, the newest first, each with its run's record if readable."""
    problems: list[str] = field(default_factory=list)


def spending_view(store: StoreLayout, since: date | None = None) -> SpendingView:
    """Return the view for the page *Spending*.

    :param since: first day, UTC; None: the default, some weeks ago.
    """
    first = datetime.combine(since, time(), UTC) if since else default_since()
    view = SpendingView(first, [])
    spent = spent_since(store, view.since, problems=view.problems)
    view.lineages = by_lineage(spent)
    rented = sorted((s for s in spent if s.is_rented), key=lambda s: s.entry.created, reverse=True)
    reader = Reader()
    records = [reader.load(RunRecord, store.run(one.run_key).record) for one in rented]
    view.rented = list(zip(records, rented, strict=True))
    view.problems += reader.problems
    return view


def spent_bar(seconds: Seconds) -> ShareBar | None:
    """Return a chart of the use of time; None when there was none."""
    # The start comes first, as it does in time, and unattributed time last.
    names = [name for name in SpentOn if name in seconds]
    parts = [(name, _STYLES.get(name, "start"), seconds[name]) for name in names]
    return share_bar(parts)


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


def _use(tpu: int, entry: LedgerEntry, state: str, rented: datetime | None = None) -> Use:
    return Use(
        tpu=tpu,
        name=f"g{entry.generation}-a{entry.attempt}",
        zone=entry.zone,
        accelerator=entry.accelerator_type,
        chips=entry.chips,
        state=state,
        hours=entry.chip_seconds / 3600,
        cost=entry.cost,
        seconds={name: value * entry.chips for name, value in named(entry).items()},
        rented_since=rented,
    )


def _open(tpu: int, entry: LedgerEntry, record: AttemptRecord) -> Use:
    newest = max(record.marks.values(), key=lambda mark: mark.time, default=None)
    state = str(newest.event) if newest else "not asked for yet"
    if may_be_rented(record):
        return _use(tpu, entry, state, rented_since(record))
    # The reaper's entry records a deletion that is not confirmed yet.
    return _use(tpu, entry, state if AttemptEvent.GONE in record.marks else entry.outcome)
