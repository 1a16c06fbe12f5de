"""Limits on how often a training passes over its rows before it memorizes them."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config import PipelineConfig
from trained_models.decided_steps import RowCounts, passes, replay_passes

PASSES_OF_ONE_MASK = 5
"""RoBERTa (arXiv 1907.11692, section 4.1) saw each row under the same masks four times."""
PASSES_OF_NEW_MASKS = 40
"""The number of epochs for which BERT and RoBERTa (the same section) were trained."""


def usual_limit(config: PipelineConfig) -> int:
    """Return the number of passes after which a model memorizes its rows."""
    return PASSES_OF_NEW_MASKS if config.masking.dynamic else PASSES_OF_ONE_MASK


def limit(config: PipelineConfig) -> float | None:
    """Return the maximum number of passes that a run may make; None: no limit."""
    most = config.training.max_passes
    return usual_limit(config) if most is None else most or None


def refusal(config: PipelineConfig, rows: RowCounts) -> str | None:
    """Return a sentence if the steps pass over the rows more often than the run may.

    :param config: with its steps decided.
    :param rows: as for :func:`passes`.
    """
    most, found = limit(config), passes(config, rows)
    if most is None or found <= most:
        return None
    enough = max(1, int(config.training.steps * most / found))
    return (
        f"training.train_steps: {config.training.steps:,} steps go over {rows.new:,} rows "
        f"{found:.3g} times, and training.max_passes allows {most:g}: {_memorizes(config)} Use "
        f"{enough:,} steps or fewer, or auto; train on more text; or raise training.max_passes (0: "
        "no limit)."
    )


def warnings(config: PipelineConfig, rows: RowCounts) -> Iterator[str]:
    """Yield a sentence for each kind of rows that is memorized, and one if some are never seen.

    :param config: with its steps decided.
    :param rows: as for :func:`passes`.
    """
    most = usual_limit(config)
    found, steps = passes(config, rows), config.training.steps
    others = "" if config.masking.dynamic else ", set masking.dynamic=true"
    if found + rows.new_before > most:
        left = max(0.0, most - rows.new_before)
        enough = max(1, int(steps * left / found))
        yield (
            f"WARNING: training.train_steps: {steps:,} steps go over {rows.new:,} rows {found:.3g} "
            f"times{after_earlier_runs(rows.new_before)}. {_memorizes(config)} Use {enough:,} "
            f"steps or fewer{others}, or train on more text."
        )
    if found < 1:
        yield (
            f"WARNING: training.train_steps: {steps:,} steps go over {found:.1%} of {rows.new:,} "
            "rows, and no later run comes back to the others of this partition. Raise what limits "
            "the steps (training.max_train_steps, the budget), or give the text in more partitions."
        )
    if (again := replay_passes(config, rows)) > most:
        yield (
            f"WARNING: training.replay_fraction: {steps:,} steps go over {rows.replayed:,} "
            f"replayed rows {again:.3g} times{after_earlier_runs(rows.replayed_before)}. "
            f"{_memorizes(config)} Lower the share{others}, or take fewer steps."
        )


def after_earlier_runs(before: float) -> str:
    """Return a phrase on the passes of earlier runs; empty if there are none."""
    return f", after {before:.3g} times in earlier runs" if before else ""


def _memorizes(config: PipelineConfig) -> str:
    masks = "masks that are drawn anew" if config.masking.dynamic else "the same masks"
    return (
        f"After about {usual_limit(config)} passes under {masks} a model memorizes them and gets "
        "worse on other text."
    )
