"""Sums up what the TPUs of all runs cost, by lineage and week, and what it was spent on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline_config.accelerators import region_of
from pipeline_store.formats import LedgerEntry, OutcomeKind, Seconds, SpentOn
from pipeline_store.formats.spent import added
from tpu_lifecycle.records.billed import Spent


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
    prices: dict[str, list[str]] = field(default_factory=dict)
    """By price, the regions to which it was applied: it may be meant for one of them only."""

    def add(self, one: Spent, *, is_last: bool = True) -> None:
        """Add one attempt.

        :param is_last: no later attempt of its run is counted elsewhere; the run's outcome counts
            only with the last one.
        """
        entry, price = one.entry, _price(one.entry)
        self.attempts += 1
        self.chip_seconds += entry.chip_seconds
        self.cost += entry.cost
        self.spent = added([self.spent, one.chip_seconds])
        self.lost_to_preemption += one.lost_to_preemption * price
        self.lost_to_failures += one.lost_to_failures * price
        self.saved = self.saved if one.saved is None else (self.saved or 0.0) + one.saved
        regions = {*self.prices.get(one.price, ()), region_of(entry.zone)}
        self.prices[one.price] = sorted(regions)
        self.runs[one.run_key] = one.outcome if is_last else None
        if one.outcome is OutcomeKind.REJECTED:
            self.cost_of_rejected += entry.cost

    @property
    def goodput(self) -> float | None:
        """Return the share of chip-seconds spent in steps that were kept."""
        return self.spent.get(SpentOn.STEP, 0.0) / self.chip_seconds if self.chip_seconds else None

    @property
    def promoted(self) -> int:
        """Return how many of the runs promoted a model."""
        return sum(1 for outcome in self.runs.values() if outcome is OutcomeKind.PROMOTED)

    @property
    def cost_per_promoted(self) -> float | None:
        """Return the cost of all runs, including those without a model, per promoted model."""
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
            "is_estimate": True,
            "prices": self.prices,
        }


@dataclass
class LineageSpending:
    """What was spent on one lineage, in one currency."""

    lineage_id: str
    total: Total
    weeks: dict[str, Total]


def by_lineage(spent: Iterable[Spent]) -> list[LineageSpending]:
    """Sum up attempts by lineage and week, both in order.

    Money counts in the week in which an attempt was requested, a run's outcome in the week of its
    newest attempt: so the outcomes of all weeks add up to those of the whole.
    """
    found: dict[tuple[str, str], list[Spent]] = defaultdict(list)
    for one in spent:
        found[one.lineage_id, one.currency].append(one)
    result = []
    for (lineage_id, currency), attempts in sorted(found.items()):
        sums = LineageSpending(lineage_id, Total(currency), {})
        in_order = sorted(attempts, key=lambda one: one.entry.created)
        last = {one.run_key: one.week for one in in_order}
        for one in in_order:
            sums.total.add(one)
            week = sums.weeks.setdefault(one.week, Total(currency))
            week.add(one, is_last=last[one.run_key] == one.week)
        result.append(sums)
    return result


def _price(entry: LedgerEntry) -> float:
    """Return the price of a chip-second."""
    return entry.cost / entry.chip_seconds if entry.chip_seconds else 0.0


def lines(lineage: LineageSpending) -> Iterator[str]:
    """Yield the lines that show a lineage in a terminal."""
    yield f"lineage {lineage.lineage_id}"
    for name, total in [*lineage.weeks.items(), ("in all", lineage.total)]:
        yield f"  {name}  {_sentence(total)}"
    total = lineage.total
    yield f"    {price_words(total)}"
    for spent_on, seconds in sorted(total.spent.items(), key=lambda item: -item[1]):
        part = seconds / total.chip_seconds
        money = total.cost * part
        yield f"    {spent_on:<40} {seconds / 3600:10.3f} chip-hours {part:7.1%} {money:10.2f}"


def price_words(total: Total) -> str:
    """Return what the costs are based on: the configured prices, each with its regions."""
    prices = (
        f"{price} a chip-hour in {' and '.join(regions)}"
        for price, regions in sorted(total.prices.items())
    )
    return (
        f"estimated at {'; at '.join(prices)}: budget.price_per_chip_hour of each run, one price "
        "for all regions"
    )


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
