"""Runs written classifiers as a server does, with only TensorFlow and its text ops.

A folder is a SavedModel, or has a TensorFlow Lite model and a SavedModel that makes its rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

# Registers the ops that make rows from texts.
import tensorflow_text  # noqa: F401

MODEL, ROWS, DESCRIPTION = "model.tflite", "tokenize", "serving.json"
"""Files of a folder with a TensorFlow Lite model: the model, a SavedModel that makes rows from
texts, and the description of inputs and outputs."""
_LOGITS = "logits"

Arrays = dict[str, npt.NDArray[Any]]


def answers(kind: str, labels: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the answers for logits [R, L]: ``predict`` in docs/reference/formats.md.

    :param kind: kind of the task.
    :param labels: string [L], in order of their ids.
    """
    if kind == "regression":
        return {"values": logits[:, 0]}
    all_labels = tf.broadcast_to(labels, tf.shape(logits))
    if kind == "multi_label":
        chosen = tf.where(logits > 0, all_labels, "")
        return {"labels": chosen, "probabilities": tf.sigmoid(logits), "classes": all_labels}
    chosen = tf.gather(labels, tf.argmax(logits, axis=1))
    return {"labels": chosen, "probabilities": tf.nn.softmax(logits), "classes": all_labels}


def is_lite(folder: str) -> bool:
    """Return whether a folder has a TensorFlow Lite model."""
    return os.path.exists(os.path.join(folder, MODEL))


class LiteModel:
    """A TensorFlow Lite model that takes one padded row at a time, on one thread.

    :raises OSError: a file is missing.
    :raises ValueError: a file is damaged.
    """

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, DESCRIPTION), encoding="utf-8") as file:
            described = json.load(file)
        with open(os.path.join(folder, MODEL), "rb") as file:
            interpreter = tf.lite.Interpreter(model_content=file.read(), num_threads=1)
        self.inputs: list[str] = described["inputs"]
        self.length: int = described["max_seq_length"]
        self._kind: str = described["kind"]
        self._labels = tf.constant(described["labels"], tf.string)
        self._run = interpreter.get_signature_runner()
        loaded = tf.saved_model.load(os.path.join(folder, ROWS))
        self._loaded = loaded
        self.tokenize = loaded.signatures[ROWS]

    def logits(self, rows: Arrays) -> npt.NDArray[np.float32]:
        """Return logits [R, L] of rows [R, S], which are padded to the model's length."""
        room = self.length - next(iter(rows.values())).shape[1]
        padded = {n: np.pad(rows[n], ((0, 0), (0, room))).astype(np.int32) for n in self.inputs}
        count = len(next(iter(padded.values())))
        found = [
            self._run(**{name: values[row : row + 1] for name, values in padded.items()})[_LOGITS]
            for row in range(count)
        ]
        return np.concatenate(found)

    def predict(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the answers for texts, as the signature ``predict`` of a SavedModel does."""
        rows = {name: value.numpy() for name, value in self.tokenize(**texts).items()}
        return answers(self._kind, self._labels, tf.constant(self.logits(rows)))


class SavedClassifier:
    """A SavedModel of a classifier.

    :raises OSError: the model is missing.
    """

    def __init__(self, folder: str) -> None:
        self._loaded = tf.saved_model.load(folder)
        signatures = self._loaded.signatures
        self._logits = signatures[_LOGITS]
        self.predict = signatures["serving_default"]
        _, wanted = self._logits.structured_input_signature
        self.inputs = sorted(wanted)

    def logits(self, rows: Arrays, batch_size: int = 128) -> npt.NDArray[np.float32]:
        """Return logits [R, L] of rows [R, S]."""
        count = len(rows[self.inputs[0]])
        found = [
            self._logits(
                **{name: tf.constant(rows[name][at : at + batch_size]) for name in self.inputs}
            )[_LOGITS].numpy()
            for at in range(0, count, batch_size)
        ]
        return np.concatenate(found)


Served = LiteModel | SavedClassifier


def load(folder: str) -> Served:
    """Load a folder of either kind."""
    return LiteModel(folder) if is_lite(folder) else SavedClassifier(folder)


class TextAnswers:
    """A written model that answers examples of one or two texts."""

    def __init__(self, folder: str) -> None:
        self._model = load(folder)

    def predict(self, texts: Sequence[tuple[str, ...]]) -> dict[str, tf.Tensor]:
        """Return the answers for some examples."""
        columns = zip(("text", "text_pair"), zip(*texts, strict=True), strict=False)
        found: dict[str, tf.Tensor] = self._model.predict(
            **{name: tf.constant(list(column)) for name, column in columns}
        )
        return found
