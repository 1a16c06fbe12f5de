"""What the TPUs of all runs cost, by lineage and week, and what the money was spent on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline_store import uris
from pipeline_store.formats import (
    FormatError,
    Ledger,
    LedgerEntry,
    OutcomeKind,
    Reservation,
    RunOutcome,
    RunRecord,
    Seconds,
    SpentOn,
)
from pipeline_store.formats.spent import added, fitted
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.records.attempts import Loss
from tpu_lifecycle.records.ledger import so_far

TAKEN = frozenset({Loss.TAKEN, Loss.STOPPED})
"""How a TPU is lost that the service takes away; the other ways are the run's own trouble."""

_LOST_WITH_IT = (SpentOn.LOST_STEPS, SpentOn.SILENCE, SpentOn.DELETION)
_DONE_AGAIN = (
    SpentOn.TPU_INITIALIZATION,
    SpentOn.IMAGE_PULL,
    SpentOn.CODE,
    SpentOn.JOB_WAIT,
    SpentOn.PROGRAM_STARTUP,
    SpentOn.TRAINING_PREP,
    SpentOn.RESTORE,
    SpentOn.COMPILE,
)


@dataclass(frozen=True)
class Spent:
    """One attempt that was billed, and whose it was.

    :param chip_seconds: by what they were spent on; they sum up to those of the ledger's entry.
    :param lost: chip-seconds that a loss cost: with the TPU that was lost, and to start the next.
    :param saved: against the price on demand; None: it is not known, or it was on demand.
    """

    run_key: str
    lineage_id: str
    outcome: OutcomeKind | None
    currency: str
    entry: LedgerEntry
    chip_seconds: Seconds
    lost_to_preemption: float
    lost_to_failures: float
    saved: float | None

    @property
    def week(self) -> str:
        """Return the week in which it was asked for, as 2026-W05."""
        return f"{self.entry.created:%G-W%V}"


@dataclass
class Total:
    """Sums over attempts; money in the currency of the ledgers."""

    currency: str
    attempts: int = 0
    chip_seconds: float = 0.0
    cost: float = 0.0
    spent: Seconds = field(default_factory=dict)
    """Chip-seconds by what they were spent on."""
    lost_to_preemption: float = 0.0
    lost_to_failures: float = 0.0
    saved: float | None = None
    runs: dict[str, OutcomeKind | None] = field(default_factory=dict)
    cost_of_rejected: float = 0.0

    def add(self, one: Spent) -> None:
        """Count one attempt more."""
        entry, price = one.entry, _price(one.entry)
        self.attempts += 1
        self.chip_seconds += entry.chip_seconds
        self.cost += entry.cost
        self.spent = added([self.spent, one.chip_seconds])
        self.lost_to_preemption += one.lost_to_preemption * price
        self.lost_to_failures += one.lost_to_failures * price
        self.saved = self.saved if one.saved is None else (self.saved or 0.0) + one.saved
        self.runs[one.run_key] = one.outcome
        if one.outcome is OutcomeKind.REJECTED:
            self.cost_of_rejected += entry.cost

    @property
    def goodput(self) -> float | None:
        """Return the share of steps that were kept."""
        return self.spent.get(SpentOn.STEP, 0.0) / self.chip_seconds if self.chip_seconds else None

    @property
    def promoted(self) -> int:
        """Return how many of the runs put a model into use."""
        return sum(1 for outcome in self.runs.values() if outcome is OutcomeKind.PROMOTED)

    @property
    def cost_per_promoted(self) -> float | None:
        """Return the cost of all runs, those without a model too, for each promoted one."""
        return self.cost / self.promoted if self.promoted else None

    def to_json(self) -> dict[str, Any]:
        """Return the sums as plain values."""
        kinds = [outcome for outcome in self.runs.values() if outcome is not None]
        return {
            "currency": self.currency,
            "attempts": self.attempts,
            "chip_seconds": round(self.chip_seconds, 3),
            "cost": round(self.cost, 4),
            "goodput": None if self.goodput is None else round(self.goodput, 4),
            "spent_chip_seconds": {name: round(value, 3) for name, value in self.spent.items()},
            "lost_to_preemption": round(self.lost_to_preemption, 4),
            "lost_to_failures": round(self.lost_to_failures, 4),
            "saved_against_on_demand": None if self.saved is None else round(self.saved, 4),
            "runs": {"all": len(self.runs)} | {str(kind): kinds.count(kind) for kind in set(kinds)},
            "cost_per_promoted_model": (
                None if self.cost_per_promoted is None else round(self.cost_per_promoted, 4)
            ),
            "cost_of_rejected": round(self.cost_of_rejected, 4),
        }


@dataclass
class LineageSpending:
    """What was spent on one lineage, in one currency."""

    lineage_id: str
    total: Total
    weeks: dict[str, Total]


def by_lineage(spent: Iterable[Spent]) -> list[LineageSpending]:
    """Sum up attempts by lineage and week, both in order."""
    found: dict[tuple[str, str], list[Spent]] = defaultdict(list)
    for one in spent:
        found[one.lineage_id, one.currency].append(one)
    result = []
    for (lineage_id, currency), attempts in sorted(found.items()):
        sums = LineageSpending(lineage_id, Total(currency), {})
        for one in sorted(attempts, key=lambda one: one.entry.created):
            sums.total.add(one)
            sums.weeks.setdefault(one.week, Total(currency)).add(one)
        result.append(sums)
    return result


def spent_since(
    store: StoreLayout,
    since: datetime,
    *,
    lineage_id: str | None = None,
    problems: list[str],
) -> list[Spent]:
    """Return every attempt that was asked for since a moment and got a TPU.

    :param lineage_id: None: of all lineages.
    :param problems: gets a line for each run whose files cannot be read.
    """
    found: list[Spent] = []
    for item in uris.list_named(store.runs, "run.json"):
        run = RunLayout(item.uri.rpartition("/")[0])
        try:
            record = RunRecord.load(run.record)
            if lineage_id in (None, record.lineage_id):
                found += spent_by(store, run, record)
        except (FormatError, OSError) as error:
            problems.append(str(error))
    return [one for one in found if one.entry.created >= since]


def spent_by(store: StoreLayout, run: RunLayout, record: RunRecord) -> Iterator[Spent]:
    """Yield the attempts that were billed to one folder that TPUs are rented for.

    :raises FormatError: a file is damaged.
    """
    owner = record.rental_of or record.run_key
    outcome = RunOutcome.load_or_none(store.run(owner).outcome)
    generation = 1
    while True:
        place = run.reservation(generation)
        reservation = Reservation.load_or_none(place.record)
        if reservation is None:
            return
        ledger = so_far(reservation, place)
        before: LedgerEntry | None = None
        for entry in ledger.entries:
            if entry.billed_seconds:
                names = (owner, record.lineage_id, outcome.outcome if outcome else None)
                yield _spent(names, ledger, entry, before)
            # An attempt that got no TPU between two leaves it the loss that the next one makes up.
            before = entry if entry.billed_seconds else before
        generation += 1


def named(entry: LedgerEntry) -> Seconds:
    """Return what an attempt's billed seconds were spent on, also where the ledger is older."""
    known = entry.seconds or {SpentOn.STEP: entry.stepping_seconds}
    return fitted(known, entry.billed_seconds, SpentOn.UNATTRIBUTED)


def _spent(
    names: tuple[str, str, OutcomeKind | None],
    ledger: Ledger,
    entry: LedgerEntry,
    before: LedgerEntry | None,
) -> Spent:
    seconds = {name: value * entry.chips for name, value in named(entry).items()}
    lost = {True: 0.0, False: 0.0}
    if entry.loss:
        lost[entry.loss in TAKEN] += _sum(seconds, _LOST_WITH_IT)
    if before is not None and before.loss:
        lost[before.loss in TAKEN] += _sum(seconds, _DONE_AGAIN)
    dearer, is_cheaper = ledger.on_demand_price_per_chip_hour, ledger.provisioning_model == "spot"
    saved = None
    if is_cheaper and dearer is not None:
        saved = entry.chip_seconds / 3600 * (dearer - ledger.price_per_chip_hour)
    return Spent(
        *names,
        currency=ledger.currency,
        entry=entry,
        chip_seconds=seconds,
        lost_to_preemption=lost[True],
        lost_to_failures=lost[False],
        saved=saved,
    )


def _sum(seconds: Seconds, names: Iterable[SpentOn]) -> float:
    return sum(seconds.get(name, 0.0) for name in names)


def _price(entry: LedgerEntry) -> float:
    """Return the price of a chip-second."""
    return entry.cost / entry.chip_seconds if entry.chip_seconds else 0.0


def lines(lineage: LineageSpending) -> Iterator[str]:
    """Yield what is shown of a lineage in a terminal."""
    yield f"lineage {lineage.lineage_id}"
    for name, total in [*lineage.weeks.items(), ("in all", lineage.total)]:
        yield f"  {name}  {_sentence(total)}"
    total = lineage.total
    for spent_on, seconds in sorted(total.spent.items(), key=lambda item: -item[1]):
        part = seconds / total.chip_seconds
        money = total.cost * part
        yield f"    {spent_on:<40} {seconds / 3600:10.3f} chip-hours {part:7.1%} {money:10.2f}"


def _sentence(total: Total) -> str:
    goodput = "-" if total.goodput is None else f"{total.goodput:.1%}"
    parts = [
        f"{total.chip_seconds / 3600:.2f} chip-hours",
        f"at most {total.cost:.2f} {total.currency}",
        f"goodput {goodput}",
        f"lost to preemption {total.lost_to_preemption:.2f}",
        f"to failures {total.lost_to_failures:.2f}",
    ]
    if total.saved is not None:
        parts.append(f"saved by spot {total.saved:.2f}")
    if total.cost_per_promoted is not None:
        parts.append(f"{total.cost_per_promoted:.2f} for each of {total.promoted} promoted models")
    if total.cost_of_rejected:
        parts.append(f"rejected candidates {total.cost_of_rejected:.2f}")
    return ", ".join(parts)
