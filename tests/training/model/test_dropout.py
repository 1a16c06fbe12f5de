"""Dropout that depends on nothing but seed, place, step and replica."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from tests.training.conftest import replicas
from tests.training.corpora import tiny_config
from training.architectures.models import build_model
from training.model.dropout import make_dropout_stateless, part_of_batch


def two_sites(step: tf.Variable, seed: int = 1) -> tf_keras.Sequential:
    model = tf_keras.Sequential([tf_keras.layers.Dropout(0.5), tf_keras.layers.Dropout(0.5)])
    model.build((None, 64))
    assert make_dropout_stateless(model, seed, step) == 2
    return model


def masks(model: tf_keras.Sequential) -> list[np.ndarray]:
    ones = tf.ones([4, 64])
    return [layer(ones, training=True).numpy() for layer in model.layers]


def test_mask_is_a_function_of_seed_site_and_step() -> None:
    step = tf.Variable(7, dtype=tf.int64)
    first, second = masks(two_sites(step))
    assert (masks(two_sites(step))[0] == first).all()
    assert (first != second).any()
    assert (masks(two_sites(step, seed=2))[0] != first).any()
    step.assign(8)
    assert (masks(two_sites(step))[0] != first).any()


def test_kept_values_are_scaled_and_inference_changes_nothing() -> None:
    model = two_sites(tf.Variable(0, dtype=tf.int64))
    first = masks(model)[0]
    assert set(np.unique(first)) == {0.0, 2.0}
    assert 0.3 < (first > 0).mean() < 0.7
    assert (model(tf.ones([4, 64]), training=False).numpy() == 1).all()


def test_replicas_drop_different_positions() -> None:
    strategy = replicas(2)
    with strategy.scope():
        model = two_sites(tf.Variable(0, dtype=tf.int64))
    shares = strategy.run(lambda: model.layers[0](tf.ones([4, 64]), training=True))
    one, other = (share.numpy() for share in strategy.experimental_local_results(shares))
    assert (one != other).any()


def test_parts_of_a_batch_drop_different_positions() -> None:
    step = tf.Variable(3, dtype=tf.int64)
    model = two_sites(step)
    found = {}
    for number in range(2):
        with part_of_batch(tf.constant(number), 2):
            found[3, number] = masks(model)[0]
    step.assign(4)
    with part_of_batch(tf.constant(0), 2):
        found[4, 0] = masks(model)[0]
    assert len({mask.tobytes() for mask in found.values()}) == 3
    # One part is the whole: there are the masks that there are without any.
    with part_of_batch(tf.constant(0), 1):
        assert (masks(model)[0] == masks(two_sites(step))[0]).all()


def test_every_dropout_of_the_encoder_is_covered() -> None:
    config = tiny_config(
        model__hidden_dropout_prob=0.1,
        model__attention_probs_dropout_prob=0.1,
        model__num_hidden_layers=2,
    )
    model = build_model(config)
    # Embeddings; attention, its output, feed-forward inside and out of each layer.
    assert make_dropout_stateless(model, 1, tf.Variable(0, dtype=tf.int64)) == 1 + 2 * 4
