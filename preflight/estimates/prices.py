"""Checks that the price that budgets and estimates use was looked up recently."""

from __future__ import annotations

from datetime import date, timedelta

from pipeline_config import PipelineConfig
from pipeline_config.accelerators import region_of
from pipeline_config.rental_schema import BudgetConfig, TpuConfig
from preflight.findings import Finding, failed, ok, warning

OLD = timedelta(days=180)
"""Age at which a price should be looked up again."""

_WHERE = "https://cloud.google.com/tpu/pricing"


def price_text(budget: BudgetConfig, tpu: TpuConfig) -> str:
    """Return the price that estimates use, with its day and the regions it is used for."""
    regions = sorted({region_of(zone) for zone in tpu.zones})
    alike = f", taken for {' and '.join(regions)} alike" if len(regions) > 1 else f", {regions[0]}"
    price = f"{budget.price_per_chip_hour:g} {budget.currency} a chip-hour"
    return f"{price} ({budget.price_date}{alike})"


def price_finding(config: PipelineConfig, today: date) -> Finding:
    """Check ``budget.price_per_chip_hour`` and the day on which it was looked up."""
    budget = config.budget
    price = f"{budget.price_per_chip_hour:g} {budget.currency} a chip-hour of {budget.price_date}"
    fix = (
        f"look it up at {_WHERE}, then --set budget.price_per_chip_hour=PRICE "
        f"--set budget.price_date={today:%Y-%m-%d}"
    )
    if not budget.price_per_chip_hour:
        return failed("the price is 0: budget.max_cost limits nothing, and ledgers say 0.", fix)
    looked_up = _last_day(budget.price_date)
    if looked_up is None:
        return failed(f"budget.price_date: there is no day {budget.price_date}.", fix)
    if _first_day(budget.price_date) > today:
        return failed(f"{price}, which is in the future.", fix)
    if today - looked_up > OLD:
        return warning(f"{price}, which is {(today - looked_up).days} days ago.", fix)
    return ok(price)


def _first_day(text: str) -> date:
    return date.fromisoformat(text if len(text) == len("2026-01-31") else f"{text}-01")


def _last_day(text: str) -> date | None:
    """Return the last day that a price date covers; for a month, its last day."""
    try:
        first = _first_day(text)
    except ValueError:
        return None
    if len(text) == len("2026-01-31"):
        return first
    return (first.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
