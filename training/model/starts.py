"""Loads the initial weights of a training and the heritage that its lineage keeps of them."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import Heritage, TrainingInputs, TrainingResult
from pipeline_store.layout import TrainingLayout
from trained_models import heritage
from trained_models.checkpoint_store import CheckpointStore
from trained_models.importing.sentence_transformers import SentenceFiles, sentence_files
from trained_models.importing.sources import SourceKind, source_kind
from trained_models.loaded_weights import LoadedWeights
from trained_models.state import TrainingState
from training.architectures.models import build_model, weights_sha256
from training.importing.loading import InitialModel
from training.model import checkpoints
from training.optimization.moments import Moments

log = logging.getLogger("training")


class Initial(NamedTuple):
    """The initial weights of a training.

    :param uri: their location.
    :param weights: the outcome of loading each of them.
    :param heritage: what the model keeps of their source for good; None: unknown or not needed.
    """

    uri: str
    weights: LoadedWeights
    heritage: Heritage | None = None


def load_initial(
    model: tf_keras.Model,
    initial: InitialModel,
    config: PipelineConfig,
    moments: Moments | None = None,
) -> Initial:
    """Load the initial weights of a training, and the moments if they are carried over.

    :param config: configuration of the training.
    :raises UserError: they do not fit; nothing was changed.
    :raises BadDataError: a file is damaged.
    """
    is_folder = source_kind(initial.uri) is SourceKind.HUGGING_FACE
    # Before the weights: files that cannot be kept are rejected at once.
    beside = sentence_files(initial.uri) if is_folder else SentenceFiles({})
    weights = checkpoints.load_weights(model, initial, moments)
    weights = weights._replace(notes=(*weights.notes, *beside.notes))
    kept = heritage.started(config, initial.uri, weights, beside.files)
    return Initial(initial.uri, weights, kept)


def save_imported(
    layout: TrainingLayout,
    config: PipelineConfig,
    initial: InitialModel,
    inputs: TrainingInputs,
    store: CheckpointStore,
) -> TrainingResult:
    """Load weights and commit them as checkpoint 0, without an optimizer's moments.

    :param layout: target folder; a checkpoint of an earlier attempt there is used as it is.
    :param initial: the weights, of any format that training can start from.
    :raises UserError: they do not fit the architecture or the vocabulary; nothing was written.
    :raises BadDataError: a file is damaged.
    """
    checkpoints.check_architecture(initial.uri, config, inputs.vocabulary_sha256)
    model = build_model(config)
    loaded = load_initial(model, initial, config)
    log.info("Imported %s: %s", loaded.uri, loaded.weights)
    loaded.weights.record(loaded.uri).write(layout.initial_weights)
    inputs = inputs.model_copy(update={"heritage": loaded.heritage})
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
