"""Checks whether a training that is finished already is the requested one."""

from __future__ import annotations

from pipeline_store.formats import FormatError, TrainingResult
from pipeline_store.layout import TrainingLayout
from trained_models import artifacts
from trained_models.checkpoint_store import CheckpointStore
from trained_models.errors import BadDataError, UserError


def finished_training(
    layout: TrainingLayout, checkpoints: CheckpointStore, instead: str
) -> TrainingResult | None:
    """Return the result of a training if it is finished, and its checkpoint verifies.

    :param checkpoints: the store of the same folder, with the requested settings and records.
    :param instead: what to do if it was trained with others; a sentence.
    :raises BadDataError: its checkpoint is damaged.
    :raises UserError: it was trained with other settings or on other records, which are listed.
    """
    result = TrainingResult.load_or_none(layout.result)
    if result is None:
        return None
    try:
        checkpoint = artifacts.result_checkpoint(layout.root)
    except FormatError as error:
        raise BadDataError(
            f"This training is finished, but its checkpoint is damaged: {error} Restore the file "
            f"from a backup, or delete {layout.result} and give the same command again: training "
            "goes on from the last checkpoint that verifies."
        ) from error
    if (changes := checkpoints.changes(checkpoint)) is not None:
        raise UserError(
            "This training is finished, so it cannot go on with other settings or records. "
            f"{changes} {instead}"
        )
    return result
