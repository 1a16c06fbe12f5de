"""The phases of a training: steps that all read rows of one length. Needs no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline_config import PipelineConfig


@dataclass(frozen=True)
class RowShape:
    """The largest sizes of rows; ``prefix`` is the prefix of the names of their settings."""

    prefix: str
    max_seq_length: int
    max_predictions_per_seq: int


@dataclass(frozen=True)
class Phase:
    """Steps with batches of one shape.

    ``first_step`` is counted from 0, ``end_step`` is the step after the last one.
    """

    name: Literal["main", "extra"]
    first_step: int
    end_step: int
    max_seq_length: int
    max_predictions_per_seq: int
    global_batch_size: int

    @property
    def prefix(self) -> str:
        """The prefix of the names of its settings."""
        return "" if self.name == "main" else "extra_"

    @property
    def shape(self) -> RowShape:
        """The shape of its rows."""
        return RowShape(self.prefix, self.max_seq_length, self.max_predictions_per_seq)


def trained_shapes(config: PipelineConfig) -> tuple[RowShape, ...]:
    """Return the shapes of the rows that the phases of a training read, in their order.

    They are known before its steps are.
    """
    masking = config.masking
    main = RowShape("", masking.max_seq_length, masking.max_predictions_per_seq)
    if masking.extra_max_seq_length is None or not config.training.extra_steps_fraction:
        return (main,)
    extra = (masking.extra_max_seq_length, masking.extra_max_predictions_per_seq)
    return main, RowShape("extra_", *extra)


def phases(config: PipelineConfig) -> tuple[Phase, ...]:
    """Return the phases of a training in order; together they are all its steps.

    There is one, or, with ``training.extra_steps_fraction``, a second one on the rows of
    ``masking.extra_max_seq_length``: most steps on short rows, the last ones on long rows, as in
    BERT (arXiv 1810.04805, appendix A.2).

    :raises ValueError: ``training.train_steps`` is still auto.
    """
    training, masking = config.training, config.masking
    steps = training.steps
    extra_steps = round(steps * training.extra_steps_fraction)
    main = Phase(
        name="main",
        first_step=0,
        end_step=steps - extra_steps,
        max_seq_length=masking.max_seq_length,
        max_predictions_per_seq=masking.max_predictions_per_seq,
        global_batch_size=training.global_batch_size,
    )
    if masking.extra_max_seq_length is None or not extra_steps:
        return (main,)
    extra = Phase(
        name="extra",
        first_step=main.end_step,
        end_step=steps,
        max_seq_length=masking.extra_max_seq_length,
        max_predictions_per_seq=masking.extra_max_predictions_per_seq,
        global_batch_size=training.extra_global_batch_size,
    )
    return main, extra


def phase_of(config: PipelineConfig, step: int) -> Phase:
    """Return the phase that a step belongs to.

    :param step: counted from 0, below ``training.train_steps``.
    """
    return next(phase for phase in phases(config) if step < phase.end_step)
