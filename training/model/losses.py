"""Cross-entropy of each masked token and of each next-sentence label, to train and to judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from trained_models.weight_names import NEXT_SENTENCE
from training.architectures.one_pass import one_pass

Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, None]]


@tf.custom_gradient
def masked_lm_losses(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Return the cross-entropy of every prediction slot in nats, float32 [R, P].

    The softmax is computed in float32, whatever the model's precision. The gradient, softmax minus
    one-hot label, is written out: where ops have to be deterministic, TensorFlow replaces its fused
    kernel for both by separate ops, which need four times the CPU time.

    :param logits: [R, P, vocab_size].
    :param labels: token ids, [R, P].
    """
    exact = tf.cast(logits, tf.float32)
    softmax = tf.nn.softmax(exact)
    # log(sum(exp(logits))): the largest softmax value is 1 / sum(exp(logits - largest logit)).
    log_sum = tf.reduce_max(exact, axis=-1) - tf.math.log(tf.reduce_max(softmax, axis=-1))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return _logit_gradients(softmax, labels, upstream, logits.dtype), None

    return log_sum - tf.gather(exact, labels, batch_dims=2), gradient


@one_pass
def _logit_gradients(
    softmax: tf.Tensor, labels: tf.Tensor, upstream: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    right = tf.one_hot(labels, softmax.shape[-1])
    return tf.cast(upstream[..., tf.newaxis] * (softmax - right), dtype)


class NextSentenceScores(NamedTuple):
    """Next-sentence prediction by row: loss in nats, and 1 where it is right; float32 [R] each."""

    losses: tf.Tensor
    correct: tf.Tensor


def next_sentence_scores(
    outputs: dict[str, tf.Tensor], batch: dict[str, tf.Tensor]
) -> NextSentenceScores:
    """Return the scores of a model that has the head, on rows that have labels."""
    labels = batch["next_sentence_labels"][:, 0]
    logits = tf.cast(outputs[NEXT_SENTENCE], tf.float32)
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return NextSentenceScores(
        losses=tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
        correct=tf.cast(predicted == labels, tf.float32),
    )
