"""Forward passes over a split, on all devices: logits, or mean hidden states of the encoder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from training.finetuning.batches import in_order
from training.finetuning.model import INPUTS
from training.finetuning.task_data import Examples
from training.runtime.strategies import on_replicas

Forward = Callable[[Examples], npt.NDArray[np.float32]]


def make_forward(
    call: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    strategy: tf.distribute.Strategy,
    batch_size: int,
) -> Forward:
    """Return a function from examples to what a model puts out for each, float32 [N, D].

    :param call: from a replica's share of a batch to float32 [R, D]; compiled once.
    """

    @tf.function
    def forward_batch(batch: tuple[dict[str, tf.Tensor]]) -> tf.Tensor:
        # One share a replica, in order, so together they are in the order of the global batch.
        placed = on_replicas(strategy, batch)
        shares = strategy.experimental_local_results(strategy.run(call, args=placed))
        return tf.concat(shares, axis=0)

    def forward(examples: Examples) -> npt.NDArray[np.float32]:
        batches = in_order(examples, batch_size, strategy)
        rows = np.concatenate([forward_batch(batch).numpy() for batch in batches])
        return rows[: len(examples)]

    return forward


def logits_of(model: tf_keras.Model, strategy: tf.distribute.Strategy, batch_size: int) -> Forward:
    """Return a function from examples to a model's logits."""
    return make_forward(lambda batch: model(batch, training=False), strategy, batch_size)


def mean_hidden_states(
    encoder: tf_keras.Model, strategy: tf.distribute.Strategy, batch_size: int
) -> Forward:
    """Return a function from examples to features: see :func:`mean_state`."""
    return make_forward(lambda batch: mean_state(encoder, batch), strategy, batch_size)


def mean_state(encoder: tf_keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the mean of examples' last hidden states over their real tokens, float32 [R, H].

    Not [CLS]: in a model that was pretrained without next-sentence prediction nothing has ever
    asked that position for the whole text, while every token's state was trained to tell the
    token.

    :param batch: int32 [R, S] each, by the names of :data:`training.finetuning.model.INPUTS`.
    """
    outputs = encoder({name: batch[name] for name in INPUTS}, training=False)
    states = tf.cast(outputs["sequence_output"], tf.float32)
    mask = tf.cast(batch["input_mask"], tf.float32)[:, :, None]
    return tf.reduce_sum(states * mask, axis=1) / tf.reduce_sum(mask, axis=1)
