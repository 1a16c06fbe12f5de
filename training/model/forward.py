"""Runs forward passes over arrays in memory on all devices; averages a row's hidden states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from training.input.data import Arrays, in_order, rows_of
from training.runtime.phases import each
from training.runtime.strategies import on_replicas

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
"""Names of an encoder's inputs, int32 [R, S] each."""

Forward = Callable[[Arrays], npt.NDArray[np.float32]]


def make_forward(
    call: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    strategy: tf.distribute.Strategy,
    batch_size: int,
) -> Forward:
    """Return a function from arrays [N, ...] to the model's output per row, float32 [N, D].

    :param call: maps a replica's share of a batch to float32 [R, D]; compiled once.
    """

    @tf.function
    def forward_batch(batch: tuple[dict[str, tf.Tensor]]) -> tf.Tensor:
        # One share per replica, in order, so together they have the order of the global batch.
        placed = on_replicas(strategy, batch)
        shares = strategy.experimental_local_results(strategy.run(call, args=placed))
        return tf.concat(shares, axis=0)

    def forward(arrays: Arrays) -> npt.NDArray[np.float32]:
        batches = in_order(arrays, batch_size, strategy)
        rows = np.concatenate([forward_batch(batch).numpy() for batch in each(batches)])
        return rows[: rows_of(arrays)]

    return forward


def mean_state(
    encoder: tf_keras.Model, batch: dict[str, tf.Tensor], counted: str = "input_mask"
) -> tf.Tensor:
    """Return the mean of each row's last hidden states over some of its tokens, float32 [R, H].

    Not [CLS] alone: without next-sentence prediction pretraining never required that position to
    represent the whole text, while every token's state was trained to predict the token.

    :param batch: int32 [R, S] each, by the names of :data:`INPUTS`, and ``counted``.
    :param counted: name of the array that is 1 for the tokens to average and 0 for the others; each
        row has at least one.
    """
    outputs = encoder({name: batch[name] for name in INPUTS}, training=False)
    states = tf.cast(outputs["sequence_output"], tf.float32)
    weights = tf.cast(batch[counted], tf.float32)[:, :, None]
    return tf.reduce_sum(states * weights, axis=1) / tf.reduce_sum(weights, axis=1)
