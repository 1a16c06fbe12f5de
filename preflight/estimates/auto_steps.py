"""Decides the steps of ``training.train_steps=auto`` from rows, limits and budgets."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Literal

from pipeline_config import PipelineConfig
from pipeline_config.accelerators import chips, core_count
from pipeline_store.layout import StoreLayout
from preflight.estimates import passes
from preflight.estimates.speed import find_speed, new_head_steps
from trained_models.decided_steps import (
    RowCounts,
    decided_config,
    fewest_steps,
    new_rows_a_step,
    with_steps,
)
from trained_models.errors import UserError
from trained_models.head_phase import STEP_SHARE, head_steps

BUDGET_SHARE = 0.8
"""Share of a budget that is planned with: speed is an estimate, and waiting for TPUs takes time."""


@dataclass(frozen=True)
class AutoSteps:
    """The steps of a run, what they were limited by, and an explanation in words."""

    steps: int
    limited_by: Literal["rows", "max_train_steps", "budget"]
    because: str

    @property
    def words(self) -> str:
        """The decision as a sentence."""
        return f"training.train_steps: auto is {self.steps:,} steps: {self.because}"


def decide(config: PipelineConfig, rows: RowCounts, store: StoreLayout | None) -> AutoSteps | None:
    """Return the steps of auto; None if the configuration has a number.

    :param rows: the rows that the run trains on and replays.
    :raises UserError: that number passes over the rows more often than ``training.max_passes``; or
        rows or budget do not suffice for the fewest steps of auto; or the steps break a rule.
    """
    if config.training.train_steps != "auto":
        if rows.new and (problem := passes.refusal(config, rows)):
            raise UserError(problem)
        return None
    found = auto_steps(config, rows, store)
    fewest = fewest_steps(config)
    if found.steps < fewest:
        raise UserError(_too_few(config, rows, found, fewest))
    decided_config(config, found.steps)
    return found


def auto_steps(
    config: PipelineConfig, rows: RowCounts | None, store: StoreLayout | None
) -> AutoSteps:
    """Return the steps of auto; if the rows are not counted yet, the most that it can be.

    :param config: with ``training.train_steps=auto``, hence with a limit of passes.
    :param rows: None: not known.
    :param store: searched for earlier runs with a known speed; None: no search.
    """
    most = config.training.max_train_steps
    found = AutoSteps(most, "max_train_steps", f"training.max_train_steps={most:,}")
    if rows is not None and (by_rows := _steps_of_passes(config, rows)) <= most:
        earlier = passes.after_earlier_runs(rows.new_before)
        times = _passes_left(config, rows)
        found = AutoSteps(by_rows, "rows", f"{times:.3g} passes over {rows.new:,} rows{earlier}")
    found = _within_budget(config, found, store)
    loop = config.training.steps_per_loop
    whole = found.steps // loop * loop or found.steps
    return replace(found, steps=whole)


def _steps_of_passes(config: PipelineConfig, rows: RowCounts) -> int:
    """Return the steps of both phases for which the first one makes all the passes it may."""
    main = _passes_left(config, rows) * rows.new / new_rows_a_step(config, rows)
    # The second phase has this share of all steps, unless it has all of them.
    return int(main / max(1 - config.training.extra_steps_fraction, 1e-9))


def _passes_left(config: PipelineConfig, rows: RowCounts) -> float:
    return max(0.0, (passes.limit(config) or 0.0) - rows.new_before)


def _within_budget(
    config: PipelineConfig, found: AutoSteps, store: StoreLayout | None
) -> AutoSteps:
    """Return the steps that the budgets allow, if these are fewer."""
    if found.steps < fewest_steps(config):
        return found
    name, hours = _budget(config)
    most = with_steps(config, found.steps)
    speed = find_speed(most, store)
    if speed is None:
        return found
    has_new_head = new_head_steps(most, store) > 0

    def counted(steps: int) -> float:
        """Return the steps, plus those of a new head alone converted to whole-model steps."""
        alone = head_steps(with_steps(config, steps)) if has_new_head else 0
        return steps + STEP_SHARE * alone

    seconds = max(0.0, BUDGET_SHARE * hours * 3600 - speed.other_seconds)
    enough = seconds / speed.training_seconds * counted(found.steps)
    bought = bisect_right(range(found.steps + 1), enough, key=counted) - 1
    if bought >= found.steps:
        return found
    because = f"what {BUDGET_SHARE:.0%} of {name} buys at the estimated speed"
    if bought < 0:
        because = f"as {BUDGET_SHARE:.0%} of {name} does not buy the steps of the new head alone"
    return AutoSteps(max(0, bought), "budget", f"{because}, instead of {found.steps:,}")


def _budget(config: PipelineConfig) -> tuple[str, float]:
    """Return the name and value of the tightest budget, and its hours with all chips."""
    budget = config.budget
    count = chips(config.tpu.accelerator_type) * config.tpu.slice_count
    limit = budget.chip_hours_limit
    if limit is not None and limit[1] < budget.max_hours * count:
        setting, allowed = limit
        value = getattr(budget, setting.rpartition(".")[2])
        name = f"{setting}={value:g}"
        if setting == "budget.max_cost":
            name += f" {budget.currency} ({allowed:.3g} chip-hours)"
        return name, allowed / count
    return f"budget.max_hours={budget.max_hours:g}", budget.max_hours


def _too_few(config: PipelineConfig, rows: RowCounts, found: AutoSteps, fewest: int) -> str:
    """Return the message about too few steps, with what to change."""
    size = config.training.global_batch_size
    head = (
        f"training.train_steps: auto is {found.steps:,} steps, {found.because}, but at least "
        f"{fewest} are needed (20, and two loops of training.steps_per_loop="
        f"{config.training.steps_per_loop}). "
    )
    if found.limited_by == "budget":
        return f"{head}Raise the budget, take a TPU of more chips, or lower training.head_steps."
    if found.limited_by == "max_train_steps":
        return f"{head}Raise training.max_train_steps."
    if rows.new_before and not _passes_left(config, rows):
        return f"{head}Train on other text, or raise training.max_passes to go over it again."
    by_rows = max(1, _steps_of_passes(config, rows))
    parts = config.training.gradient_accumulation_steps
    if config.training.distribution_strategy == "tpu":
        parts *= core_count(config.tpu.accelerator_type)
    batch = max(1, size * by_rows // fewest // parts) * parts
    return (
        f"{head}Set training.global_batch_size to {batch:,} or less instead of {size:,}, train on "
        "more text (training.partitions=unseen), or raise training.max_passes."
    )
