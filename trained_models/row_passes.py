"""How often the steps of a training go over its rows."""

from __future__ import annotations

from pipeline_config import PipelineConfig
from trained_models.decided_steps import RowCounts
from trained_models.phases import phases


def new_rows_a_step(config: PipelineConfig, rows: RowCounts) -> float:
    """Return the rows of a batch of the main length that are not replayed."""
    replayed = config.training.replay_fraction if rows.replayed else 0.0
    return config.training.global_batch_size * (1 - replayed)


def passes(config: PipelineConfig, rows: RowCounts) -> float:
    """Return how often the steps of the main row length go over the rows trained on.

    :param config: its steps are decided.
    :param rows: with at least 1 that is new.
    """
    phase = phases(config)[0]
    return (phase.end_step - phase.first_step) * new_rows_a_step(config, rows) / rows.new


def replay_passes(config: PipelineConfig, rows: RowCounts) -> float:
    """Return how often those steps go over the replayed rows.

    :param config: its steps are decided.
    """
    if not rows.replayed:
        return 0.0
    phase = phases(config)[0]
    seen = (phase.end_step - phase.first_step) * phase.global_batch_size
    return seen * config.training.replay_fraction / rows.replayed
