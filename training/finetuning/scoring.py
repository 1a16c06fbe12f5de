"""Runs a trained classifier over a split; writes its scores and the file of its predictions."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from pipeline_store import uris
from pipeline_store.formats import FileDigest, TaskManifest, TaskSplit, TrialScores
from trained_models.downstream import metrics
from trained_models.errors import BadDataError
from training.finetuning.task_data import Examples
from training.model.forward import make_forward, mean_state

Forward = Callable[[Examples], npt.NDArray[np.float32]]


def logits_of(model: tf_keras.Model, strategy: tf.distribute.Strategy, batch_size: int) -> Forward:
    """Return a function from examples to a model's logits, float32 [N, L]."""
    forward = make_forward(lambda batch: model(batch, training=False), strategy, batch_size)
    return lambda examples: forward(examples.inputs)


def mean_hidden_states(
    encoder: tf_keras.Model, strategy: tf.distribute.Strategy, batch_size: int
) -> Forward:
    """Return a function from examples to the mean state of their real tokens, float32 [N, H]."""
    forward = make_forward(lambda batch: mean_state(encoder, batch), strategy, batch_size)
    return lambda examples: forward(examples.inputs)


def score_split(
    forward: Forward,
    examples: Examples,
    split: TaskSplit,
    manifest: TaskManifest,
    *,
    folder: str,
    path: str,
) -> TrialScores:
    """Score a model on a split and write its predictions.

    :param forward: maps examples to the model's logits.
    :param folder: the trial's folder.
    :param path: path of the predictions, relative to the folder.
    :raises BadDataError: the outputs are not finite.
    """
    kind, labels = manifest.label_kind, examples.known_labels
    outputs = forward(examples)
    if not np.isfinite(outputs).all():
        raise BadDataError(
            f"The outputs on the {split} examples of task {manifest.name!r} are not finite: the "
            "model's weights are broken."
        )
    return TrialScores(
        examples=len(examples),
        loss=float(metrics.example_losses(kind, labels, outputs).mean()),
        metrics=metrics.scores(kind, labels, outputs),
        per_label=metrics.per_label(kind, labels, outputs, manifest.labels),
        confusion=metrics.confusion(labels, outputs) if kind == "classification" else [],
        predictions=_write(folder, path, {"labels": labels, "outputs": outputs}),
    )


def _write(folder: str, path: str, arrays: dict[str, npt.NDArray[Any]]) -> FileDigest:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    uris.write(uris.join(folder, path), content)
    return FileDigest.of(path, content)
