"""Losses of classifiers and regressors for every example, and weights of labels."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline_config.task import TaskKind
from training.finetuning.task_data import Examples

ClassWeights = npt.NDArray[np.float32]


def example_losses(
    kind: TaskKind, logits: tf.Tensor, labels: tf.Tensor, class_weights: tf.Tensor | None
) -> tf.Tensor:
    """Return the weighted loss of every example, float32 [R].

    It is the cross-entropy in nats; with several labels the mean over them; for a regression the
    squared error.

    :param logits: float32 [R, L]; for a regression [R, 1].
    :param labels: as in :class:`training.finetuning.task_data.Examples`.
    :param class_weights: as :func:`balanced_weights` returns them; None: all are 1.
    """
    if kind == "regression":
        return tf.square(logits[:, 0] - labels)
    if kind == "multi_label":
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        if class_weights is not None:
            losses *= tf.where(labels > 0, class_weights[1], class_weights[0])
        return tf.reduce_mean(losses, axis=1)
    losses = _cross_entropy(logits, labels)
    return losses if class_weights is None else losses * tf.gather(class_weights, labels)


def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    # Not TensorFlow's fused kernel: it refuses to run where ops have to be deterministic on a GPU.
    right = tf.one_hot(labels, logits.shape[-1])
    return -tf.reduce_sum(right * tf.nn.log_softmax(logits), axis=1)


def balanced_weights(
    kind: Literal["classification", "multi_label"], examples: Examples, outputs: int
) -> ClassWeights:
    """Return weights with which rare labels count as much as frequent ones.

    For a classification [L]: N / (L * examples of the label), like scikit-learn's "balanced", where
    L counts the labels that have examples. For several labels [2, L]: the same for each label by
    itself, no in row 0 and yes in row 1. Either way the mean weight of the training examples is 1.
    A label without examples has weight 0, as it never occurs.
    """
    labels, total = examples.known_labels, len(examples)
    if kind == "classification":
        counts = np.bincount(labels, minlength=outputs)
        present = int(np.count_nonzero(counts))
        return _inverse(total, counts, present)
    yes = labels.sum(axis=0)
    return np.stack([_inverse(total, total - yes, 2), _inverse(total, yes, 2)])


def _inverse(total: int, counts: npt.NDArray[Any], parts: int) -> ClassWeights:
    weights = total / (parts * np.maximum(counts, 1))
    return np.where(counts > 0, weights, 0.0).astype(np.float32)
