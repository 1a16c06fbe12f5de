"""Configures a training whose steps its run's plan has decided: ``training.train_steps=auto``.

It also computes how often the steps of a training go over its rows.

No TensorFlow: plan and estimates use it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline_config import PipelineConfig
from pipeline_config.rules import violations
from trained_models.errors import UserError
from trained_models.phases import phases

WARMUP_SHARE = 0.1
"""Largest share of the steps for the warm-up; docs/guides/recipes.md has 5 to 10 %."""
DECAY_SHARE = 0.2
"""Largest share of the steps in which ``constant_then_linear`` decays (arXiv 2405.18392: 10 to
20 %)."""
CHECKPOINTS = 10
"""About the number of checkpoints of a short training, from which ``keep_best`` can choose."""
FEWEST_STEPS = 20
"""Enough for a warm-up of two steps."""


@dataclass(frozen=True)
class RowCounts:
    """Numbers of training rows of the main length, copies included: trained on and replayed.

    :ivar new_before: how often earlier runs went over the new rows, as the mean of these rows.
    :ivar replayed_before: the same for the replayed rows.
    """

    new: int
    replayed: int = 0
    new_before: float = 0.0
    replayed_before: float = 0.0


def fewest_steps(config: PipelineConfig) -> int:
    """Return the fewest steps that auto can choose: enough for a checkpoint before the last one."""
    return max(FEWEST_STEPS, 2 * config.training.steps_per_loop)


def with_steps(config: PipelineConfig, steps: int) -> PipelineConfig:
    """Return a configuration with so many steps; if they were auto, adapt what depends on them.

    Settings for long trainings are reduced to a share of a short one: warm-up, decay steps, and
    the steps between checkpoints. A configuration that names a number of steps has these chosen
    for it, so they stay.

    :param steps: at least :func:`fewest_steps` for auto.
    """
    training, optimizer = config.training, config.optimizer
    if training.train_steps != "auto":
        return config.model_copy(
            update={"training": training.model_copy(update={"train_steps": steps})}
        )
    loop = training.steps_per_loop
    interval = math.ceil(steps / CHECKPOINTS / loop) * loop
    warmup, decay = int(WARMUP_SHARE * steps), max(1, int(DECAY_SHARE * steps))
    trained = {
        "train_steps": steps,
        "checkpoint_interval": min(training.checkpoint_interval, interval),
    }
    stepped = {
        "warmup_steps": min(optimizer.warmup_steps, warmup),
        "decay_steps": min(optimizer.decay_steps, decay),
    }
    # The limit of the cost limits the chip-hours of auto steps; with a number it refuses the run.
    limit = config.budget.chip_hours_limit
    chip_hours = {"max_chip_hours": None if limit is None else limit[1]}
    return config.model_copy(
        update={
            "training": training.model_copy(update=trained),
            "optimizer": optimizer.model_copy(update=stepped),
            "budget": config.budget.model_copy(update=chip_hours),
        }
    )


def decided_config(config: PipelineConfig, steps: int | None) -> PipelineConfig:
    """Return a configuration whose steps are a number.

    :param steps: the plan's decision; None: there is none, as the configuration has a number.
    :raises UserError: neither has a number, they contradict each other, or so many steps break a
        rule.
    """
    wanted = config.training.train_steps
    if steps is None:
        if wanted == "auto":
            raise UserError(
                "training.train_steps is auto, which a run's plan decides: give its train_steps by "
                "--train-steps, or set training.train_steps to a number."
            )
        return config
    if wanted not in ("auto", steps):
        raise UserError(
            f"--train-steps {steps:,} is not training.train_steps={wanted:,}; leave it out, or set "
            "training.train_steps to auto."
        )
    decided = with_steps(config, steps)
    if problems := violations(decided):
        raise UserError(f"With {steps:,} steps, from training.train_steps: {' '.join(problems)}")
    return decided


def new_rows_a_step(config: PipelineConfig, rows: RowCounts) -> float:
    """Return the rows of a batch of the main length that are not replayed."""
    replayed = config.training.replay_fraction if rows.replayed else 0.0
    return config.training.global_batch_size * (1 - replayed)


def passes(config: PipelineConfig, rows: RowCounts) -> float:
    """Return how often the steps of the main row length go over the rows trained on.

    :param config: its steps are decided.
    :param rows: at least 1 of them is new.
    """
    phase = phases(config)[0]
    return (phase.end_step - phase.first_step) * new_rows_a_step(config, rows) / rows.new


def replay_passes(config: PipelineConfig, rows: RowCounts) -> float:
    """Return how often the steps of the main row length go over the replayed rows.

    :param config: its steps are decided.
    """
    if not rows.replayed:
        return 0.0
    phase = phases(config)[0]
    seen = (phase.end_step - phase.first_step) * phase.global_batch_size
    return seen * config.training.replay_fraction / rows.replayed
