"""Measures a written classifier after loading it: weights, answers and latency."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline_config.training_schema import ModelConfig
from pipeline_store.formats import ModelFigures, TaskManifest
from trained_models.architectures.architecture import architecture_of, weights
from trained_models.compression.trimming import Arrays
from trained_models.downstream import metrics
from trained_models.errors import BadDataError
from trained_models.weight_names import Part
from training.compression import tflite
from training.finetuning.exporting import served
from training.finetuning.exporting.exporter import TextModel

TIMED_ROWS = 100


def answers(folder: Path, rows: Arrays) -> npt.NDArray[np.float32]:
    """Return a written model's logits, [N, L].

    :raises BadDataError: it cannot be loaded or run.
    """
    try:
        return served.load(str(folder)).logits(rows)
    except (OSError, ValueError, RuntimeError, KeyError, tf.errors.OpError) as error:
        raise BadDataError(
            f"{folder.name} cannot be run: {error} Nothing was committed; give the command again."
        ) from error


def figures(
    folder: Path,
    model: TextModel,
    manifest: TaskManifest,
    labels: npt.NDArray[Any],
    outputs: npt.NDArray[np.float32],
) -> ModelFigures:
    """Return the figures of a written model.

    :param model: the model that was written.
    :param labels: labels of the test examples.
    :param outputs: the written model's logits for them.
    """
    kind, length = manifest.label_kind, manifest.max_seq_length
    sizes = model.trained.config.model
    weights, found = _weights(folder)
    if served.is_lite(str(folder)):
        # Embeddings of positions beyond the task's length are not written.
        sizes = sizes.model_copy(update={"max_position_embeddings": length})
    total = sum(found.values())
    times = latency(folder, length)
    return ModelFigures(
        parameters=total,
        expected_parameters=classifier_weights(sizes, outputs.shape[1]),
        types={name: count / max(total, 1) for name, count in found.items()},
        megabytes=weights.stat().st_size / 1e6,
        p50_ms=times["p50_ms"],
        p95_ms=times["p95_ms"],
        metric=manifest.compared_by,
        value=metrics.scores(kind, labels, outputs)[manifest.compared_by],
        loss=float(metrics.example_losses(kind, labels, outputs).mean()),
        examples=len(labels),
    )


def _weights(folder: Path) -> tuple[Path, dict[str, int]]:
    """Return the file with the weights, and the number of weights of each type."""
    if served.is_lite(str(folder)):
        path = folder / served.MODEL
        return path, tflite.weights_by_type(path)
    prefix = folder / "variables" / "variables"
    reader = tf.train.load_checkpoint(str(prefix))
    types = reader.get_variable_to_dtype_map()
    found: Counter[str] = Counter()
    for name, shape in reader.get_variable_to_shape_map().items():
        if types[name].is_floating:
            found[types[name].name] += math.prod(shape)
    (path,) = prefix.parent.glob("variables.data-*")
    return path, dict(found)


def latency(folder: Path, length: int) -> dict[str, Any]:
    """Return the results of ``python -m training.measure_latency``, a process with one thread.

    :raises BadDataError: the command fails.
    """
    command = [sys.executable, "-m", "training.measure_latency", "--model", str(folder)]
    command += ["--length", str(length), "--rows", str(TIMED_ROWS)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BadDataError(f"{folder.name} cannot be timed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def classifier_weights(model: ModelConfig, outputs: int) -> int:
    """Return the number of weights of encoder, pooler and classifier.

    :param outputs: number of outputs of the last layer.
    """
    encoder = sum(
        math.prod(weight.shape)
        for weight in weights(model, next_sentence=False)
        if weight.part in {Part.ENCODER, Part.POOLER}
    )
    own_pooler = 0
    if architecture_of(model).hugging_face.own_pooler is not None:
        own_pooler = model.hidden_size * (model.hidden_size + 1)
    return encoder + own_pooler + outputs * (model.hidden_size + 1)
