"""Dropout as a pure function of seed, layer, step, batch part and replica: resume is exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf
import tf_keras

SITES = 100_003  # a prime above any number of dropout layers
REPLICAS = 65_536

# Number of the batch part being computed, and the number of parts. Each replica is traced in a
# thread of its own, which has its own value.
_PART: ContextVar[tuple[tf.Tensor | int, int]] = ContextVar("part", default=(0, 1))


@contextmanager
def part_of_batch(number: tf.Tensor, count: int) -> Iterator[None]:
    """Give a part of a batch its own dropout masks, by its number, the step and the replica.

    :param number: int32 scalar, from 0.
    :param count: parts of a replica's share of the batch. A single part has the masks of the whole.
    """
    before = _PART.set((number, count))
    try:
        yield
    finally:
        _PART.reset(before)


def make_dropout_stateless(model: tf_keras.Model, seed: int, step: tf.Variable) -> int:
    """Replace the random generator of every dropout layer by a counter-based one.

    Keras draws from a generator whose state is in no checkpoint. Here the mask is drawn from the
    seed, the layer's number, the step, the part of the batch and the replica.

    :param model: built model; its layers are changed in place.
    :param step: int64 variable that counts training steps, such as ``optimizer.iterations``.
    :returns: the number of dropout layers.
    """
    layers = [layer for layer in model.submodules if isinstance(layer, tf_keras.layers.Dropout)]
    for site, layer in enumerate(layers):
        # tf_keras has no public place for this; tests/training/model/test_dropout.py guards it.
        layer._random_generator.dropout = _StatelessDropout(seed * SITES + site, step)
    return len(layers)


class _StatelessDropout:
    def __init__(self, key: int, step: tf.Variable) -> None:
        self._key = key
        self._step = step

    def __call__(
        self, inputs: tf.Tensor, rate: float, noise_shape: tf.Tensor | None = None
    ) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group
        number, count = _PART.get()
        turn = self._step.read_value()
        if count > 1:
            turn = turn * count + tf.cast(number, tf.int64)
        counter = turn * REPLICAS + tf.cast(replica, tf.int64)
        key = tf.stack([tf.constant(self._key, tf.int64), counter])
        return tf.nn.experimental.stateless_dropout(
            inputs, rate, seed=key, noise_shape=noise_shape, rng_alg="philox"
        )
