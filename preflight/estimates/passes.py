"""How often a training goes over its rows, and when it memorizes them."""

from __future__ import annotations

from pipeline_config import PipelineConfig
from trained_models.phases import phases

PASSES_OF_ONE_MASK = 5
"""RoBERTa (arXiv 1907.11692, section 4.1) saw each row under the same masks four times."""
PASSES_OF_NEW_MASKS = 40
"""As many epochs as BERT and RoBERTa (the same section) were trained for."""


def passes(config: PipelineConfig, rows: int) -> float:
    """Return how often the steps of the main row length go over some rows.

    Replayed rows count as new ones: a first model has none, so that it is the most there can be.

    :param rows: training rows of the main length, all copies of them; at least 1.
    """
    phase = phases(config)[0]
    return (phase.end_step - phase.first_step) * phase.global_batch_size / rows


def warning(config: PipelineConfig, rows: int) -> str | None:
    """Return a sentence if the rows are seen so often that the model memorizes them.

    :param rows: as of :func:`passes`.
    """
    most = PASSES_OF_NEW_MASKS if config.masking.dynamic else PASSES_OF_ONE_MASK
    found, steps = passes(config, rows), config.training.train_steps
    if found <= most:
        return None
    masks = "masks that are drawn anew" if config.masking.dynamic else "the same masks"
    enough = max(1, int(steps * most / found))
    others = "" if config.masking.dynamic else ", set masking.dynamic=true"
    return (
        f"WARNING: training.train_steps: {steps:,} steps go over {rows:,} rows {found:.3g} times. "
        f"After about {most} passes under {masks} a model memorizes them and gets worse on other "
        f"text. Use {enough:,} steps or fewer{others}, or train on more text."
    )
