"""The loss and its written-out gradient are TensorFlow's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from training.model.losses import masked_lm_losses

ROWS, SLOTS, WORDS = 4, 5, 37


def reference(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def with_gradient(losses: Any, logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    weights = tf.reshape(tf.range(ROWS * SLOTS, dtype=tf.float32), [ROWS, SLOTS]) / 10.0
    with tf.GradientTape() as tape:
        tape.watch(logits)
        found = losses(logits, labels)
        total = tf.reduce_sum(found * weights)
    return found, tape.gradient(total, logits)


@pytest.fixture
def labels() -> tf.Tensor:
    draws = np.random.default_rng(3).integers(0, WORDS, size=(ROWS, SLOTS))
    return tf.constant(draws, tf.int32)


# At 300 the probability of most labels is no float32 any more: it is 0.
@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_losses_and_gradients_are_tensorflows(
    labels: tf.Tensor, scale: float, dtype: tf.DType
) -> None:
    draws = np.random.default_rng(7).normal(scale=scale, size=(ROWS, SLOTS, WORDS))
    logits = tf.cast(draws, dtype)
    losses, gradient = with_gradient(masked_lm_losses, logits, labels)
    expected_losses, expected_gradient = with_gradient(reference, logits, labels)
    assert losses.dtype == tf.float32
    assert gradient.dtype == dtype
    np.testing.assert_allclose(losses, expected_losses, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(
        tf.cast(gradient, tf.float32),
        tf.cast(expected_gradient, tf.float32),
        atol=1e-6 if dtype == tf.float32 else 1e-2,
    )


def test_a_logit_that_is_no_number_makes_no_loss_of_one(labels: tf.Tensor) -> None:
    draws = np.ones((ROWS, SLOTS, WORDS), np.float32)
    draws[1, 2, 3] = np.nan
    losses = masked_lm_losses(tf.constant(draws), labels).numpy()
    assert np.isnan(losses[1, 2])
    assert np.isfinite(losses).sum() == ROWS * SLOTS - 1
