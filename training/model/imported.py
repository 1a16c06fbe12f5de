"""Weights from elsewhere saved as a model of this project: a training of no steps."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import TrainingInputs, TrainingResult
from pipeline_store.layout import TrainingLayout
from trained_models.checkpoint_store import CheckpointStore
from trained_models.state import TrainingState
from training.importing.loading import InitialModel
from training.model import checkpoints
from training.model.bert import build_model, weights_sha256

log = logging.getLogger("training")


def save_imported(
    layout: TrainingLayout,
    config: PipelineConfig,
    initial: InitialModel,
    inputs: TrainingInputs,
    store: CheckpointStore,
) -> TrainingResult:
    """Load weights and commit them as checkpoint 0, without an optimizer's moments.

    :param layout: where they come to; an earlier try's checkpoint there is taken as it is.
    :param initial: the weights, of any format that can be trained from.
    :raises UserError: they do not fit the architecture or the vocabulary; nothing was written.
    :raises BadDataError: a file is damaged.
    """
    checkpoints.check_architecture(initial.uri, config, inputs.vocabulary_sha256)
    model = build_model(config)
    loaded = checkpoints.load_weights(model, initial)
    log.info("Imported %s: %s", initial.uri, loaded)
    loaded.record(initial.uri).write(layout.initial_weights)
    with tempfile.TemporaryDirectory() as scratch:
        files = checkpoints.write_files(
            Path(scratch), model, None, inputs, tf.train.CheckpointOptions()
        )
        committed = store.commit(files, TrainingState(loss=0.0)).manifest
    result = TrainingResult(
        train_steps=0,
        tokens=0,
        final_loss=0.0,
        checkpoint=layout.checkpoint(0).removeprefix(uris.join(layout.root, "")),
        weights_sha256=weights_sha256(model),
        seconds=0.0,
        resumed_from=[],
        steps_done=0,
    )
    if not result.create(layout.result):
        result = TrainingResult.load(layout.result)
    log.info("Saved as %s.", committed.prefix)
    return result
