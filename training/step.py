"""One training step whose result does not depend on the number of replicas, and the loop of steps.

Loss, token counts and gradients are summed over all replicas before anything is divided or
clipped, so the learning rate means the same on one device and on a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf
import tf_keras
from official.nlp.modeling.models import BertPretrainerV2

from training.model import trained_variables

Batch = dict[str, tf.Tensor]


class StepMetrics(NamedTuple):
    """Sums over all replicas of one step, or over the steps of a loop; scalars."""

    loss_sum: tf.Tensor
    masked_tokens: tf.Tensor
    tokens: tf.Tensor
    gradient_norm: tf.Tensor


TrainLoop = Callable[[Iterator[tuple[Batch]], tf.Tensor], StepMetrics]


def masked_lm_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of every prediction slot in nats, float32 [R, P].

    The softmax is taken in float32, whatever the arithmetic of the model.
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def make_replica_step(
    model: BertPretrainerV2, optimizer: tf_keras.optimizers.legacy.Optimizer, clip_norm: float
) -> Callable[[Batch], StepMetrics]:
    """Return the step of one replica; it runs inside ``strategy.run``."""
    variables = trained_variables(model)

    def replica_step(batch: Batch) -> StepMetrics:
        weights = batch["masked_lm_weights"]
        with tf.GradientTape() as tape:
            logits = model(batch, training=True)["mlm_logits"]
            loss_sum = tf.reduce_sum(masked_lm_losses(logits, batch["masked_lm_ids"]) * weights)
        gradients = tape.gradient(loss_sum, variables)

        replicas = tf.distribute.get_replica_context()
        loss_sum, masked = replicas.all_reduce("SUM", [loss_sum, tf.reduce_sum(weights)])
        tokens = replicas.all_reduce("SUM", tf.reduce_sum(batch["input_mask"]))
        gradients = replicas.all_reduce("SUM", gradients)

        # A batch without a single prediction has zero gradients; it must not divide by zero.
        scale = 1.0 / tf.maximum(masked, 1.0)
        gradients, norm = tf.clip_by_global_norm([g * scale for g in gradients], clip_norm)
        optimizer.apply_gradients(
            zip(gradients, variables, strict=True), experimental_aggregate_gradients=False
        )
        return StepMetrics(loss_sum, masked, tokens, norm)

    return replica_step


def make_train_loop(
    strategy: tf.distribute.Strategy,
    model: BertPretrainerV2,
    optimizer: tf_keras.optimizers.legacy.Optimizer,
    clip_norm: float,
) -> TrainLoop:
    """Return a compiled function that runs a number of steps and returns the sums over them."""
    replica_step = make_replica_step(model, optimizer, clip_norm)

    @tf.function
    def train_loop(iterator: Iterator[tuple[Batch]], steps: tf.Tensor) -> StepMetrics:
        loss_sum, masked, norms = tf.constant(0.0), tf.constant(0.0), tf.constant(0.0)
        tokens = tf.constant(0, tf.int64)
        for _ in tf.range(steps):
            # All replicas return the same sums, so the first one speaks for all.
            metrics = StepMetrics(
                *(
                    strategy.experimental_local_results(value)[0]
                    for value in strategy.run(replica_step, args=next(iterator))
                )
            )
            loss_sum += metrics.loss_sum
            masked += metrics.masked_tokens
            tokens += tf.cast(metrics.tokens, tf.int64)
            norms += metrics.gradient_norm
        return StepMetrics(loss_sum, masked, tokens, norms)

    return train_loop
