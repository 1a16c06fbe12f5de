"""One training step whose result does not depend on the number of replicas, and the loop of steps.

Losses, counts and gradients are summed over all replicas and then divided by counts of the whole
batch, before anything is clipped, so the learning rate means the same on one device and on a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf
import tf_keras
from official.nlp.modeling.models import BertPretrainerV2

from training.model import NEXT_SENTENCE, has_next_sentence_head, trained_variables

Batch = dict[str, tf.Tensor]


class StepMetrics(NamedTuple):
    """Sums over all replicas of one step, or over the steps of a loop; scalars.

    ``loss_sum`` is the masked-LM loss. The last three are of next-sentence prediction, and 0
    without it; ``pairs`` are the rows that have a label.
    """

    loss_sum: tf.Tensor
    masked_tokens: tf.Tensor
    tokens: tf.Tensor
    gradient_norm: tf.Tensor
    next_sentence_loss_sum: tf.Tensor
    next_sentence_correct: tf.Tensor
    pairs: tf.Tensor


TrainLoop = Callable[[Iterator[tuple[Batch]], tf.Tensor], StepMetrics]


def masked_lm_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of every prediction slot in nats, float32 [R, P].

    The softmax is taken in float32, whatever the arithmetic of the model.
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


class NextSentenceScores(NamedTuple):
    """Next-sentence prediction by row: loss in nats, and 1 where it is right; float32 [R] each."""

    losses: tf.Tensor
    correct: tf.Tensor


def next_sentence_scores(outputs: dict[str, tf.Tensor], batch: Batch) -> NextSentenceScores:
    """Return the scores of a model that has the head, on rows that have labels."""
    labels = batch["next_sentence_labels"][:, 0]
    logits = tf.cast(outputs[NEXT_SENTENCE], tf.float32)
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return NextSentenceScores(
        losses=tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
        correct=tf.cast(predicted == labels, tf.float32),
    )


def make_replica_step(
    model: BertPretrainerV2, optimizer: tf_keras.optimizers.legacy.Optimizer, clip_norm: float
) -> Callable[[Batch], StepMetrics]:
    """Return the step of one replica; it runs inside ``strategy.run``.

    The loss is the mean over masked tokens of the masked-LM loss and, as in BERT, plus the mean
    over rows of the next-sentence loss where the model has that head.
    """
    variables = trained_variables(model)
    with_next_sentence = has_next_sentence_head(model)

    def replica_step(batch: Batch) -> StepMetrics:
        replicas = tf.distribute.get_replica_context()
        weights = batch["masked_lm_weights"]
        rows = tf.cast(tf.shape(weights)[0], tf.float32)
        masked, rows = replicas.all_reduce("SUM", [tf.reduce_sum(weights), rows])
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            losses = masked_lm_losses(outputs["mlm_logits"], batch["masked_lm_ids"])
            sums = [tf.reduce_sum(losses * weights)]
            # A batch without a single prediction has zero gradients; it must not divide by zero.
            loss = sums[0] / tf.maximum(masked, 1.0)
            if with_next_sentence:
                scores = next_sentence_scores(outputs, batch)
                sums += [tf.reduce_sum(scores.losses), tf.reduce_sum(scores.correct)]
                loss += sums[1] / rows
        gradients = replicas.all_reduce("SUM", tape.gradient(loss, variables))
        sums = replicas.all_reduce("SUM", sums)
        tokens = replicas.all_reduce("SUM", tf.reduce_sum(batch["input_mask"]))

        gradients, norm = tf.clip_by_global_norm(gradients, clip_norm)
        optimizer.apply_gradients(
            zip(gradients, variables, strict=True), experimental_aggregate_gradients=False
        )
        pairs = [*sums[1:], rows] if with_next_sentence else [tf.constant(0.0)] * 3
        return StepMetrics(sums[0], masked, tokens, norm, *pairs)

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
        zeros = dict.fromkeys(StepMetrics._fields, tf.constant(0.0))
        totals = StepMetrics(**zeros | {"tokens": tf.constant(0, tf.int64)})
        for _ in tf.range(steps):
            metrics = strategy.run(replica_step, args=next(iterator))
            # All replicas return the same sums, so the first one speaks for all.
            first = (strategy.experimental_local_results(value)[0] for value in metrics)
            totals = StepMetrics(
                *(
                    total + tf.cast(new, total.dtype)
                    for total, new in zip(totals, first, strict=True)
                )
            )
        return totals

    return train_loop
