"""One step of fine-tuning, whose result does not depend on the number of replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from training.architectures.one_pass import elementwise_in_one_pass
from training.finetuning.task_data import LABELS
from training.loop.step import Batch, apply_summed


class ClassifierMetrics(NamedTuple):
    """Sums over all replicas of one step, or over the steps of a loop; scalars.

    ``loss_sum`` is the weighted loss that is optimized. ``input_wait_seconds`` is as in
    :class:`training.loop.step.StepMetrics`.
    """

    loss_sum: tf.Tensor
    examples: tf.Tensor
    tokens: tf.Tensor
    gradient_norm: tf.Tensor
    input_wait_seconds: tf.Tensor


def make_replica_step(
    model: tf_keras.Model,
    optimizer: tf_keras.optimizers.legacy.Optimizer,
    losses: Callable[[tf.Tensor, Batch], tf.Tensor],
    clip_norm: float,
) -> Callable[[Batch], ClassifierMetrics]:
    """Return the step of one replica; it runs inside ``strategy.run``.

    The loss is the sum over the examples of the global batch, divided by their number.

    :param losses: maps logits, float32 [R, L], and their batch to the loss of every example, [R].
    """
    variables = model.trainable_variables

    def replica_step(batch: Batch) -> ClassifierMetrics:
        replicas = tf.distribute.get_replica_context()
        rows = tf.cast(tf.shape(batch[LABELS])[0], tf.float32)
        rows = replicas.all_reduce("SUM", rows)
        with elementwise_in_one_pass():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                logits = model(batch, training=True)
                loss_sum = tf.reduce_sum(losses(logits, batch))
                loss = loss_sum / rows
            # Gradients of embeddings are sparse rows. They are made dense first: the norm of a row
            # that occurs twice is not the sum of two norms, and a TPU sums dense tensors only.
            gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        gradients = replicas.all_reduce("SUM", gradients)
        loss_sum = replicas.all_reduce("SUM", loss_sum)
        tokens = replicas.all_reduce("SUM", _tokens(batch))
        norm = apply_summed(optimizer, gradients, variables, clip_norm)
        return ClassifierMetrics(loss_sum, rows, tokens, norm, tf.constant(0.0))

    return replica_step


def _tokens(batch: Batch) -> tf.Tensor:
    """Return the number of real tokens in the batch; 0 if it has features of a frozen encoder."""
    mask = batch.get("input_mask")
    return tf.constant(0) if mask is None else tf.reduce_sum(mask)
