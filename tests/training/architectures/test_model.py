"""What the built model computes, and what it is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.training.corpora import tiny_config
from training.architectures.activations import ACTIVATIONS
from training.architectures.models import (
    build_model,
    named_variables,
    trained_variables,
    weights_sha256,
)


def inputs(rows: int = 3) -> dict[str, tf.Tensor]:
    generator = np.random.default_rng(0)
    return {
        "input_word_ids": tf.constant(generator.integers(0, 300, (rows, 16)), tf.int32),
        "input_mask": tf.ones([rows, 16], tf.int32),
        "input_type_ids": tf.zeros([rows, 16], tf.int32),
        "masked_lm_positions": tf.constant([[1, 2, 3, 4]] * rows, tf.int32),
        "masked_lm_ids": tf.constant([[9, 8, 7, 6]] * rows, tf.int32),
        "masked_lm_weights": tf.ones([rows, 4]),
    }


def test_activations_are_the_two_different_functions() -> None:
    x = 1.3
    erf = 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
    tanh = 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    values = {name: float(gelu(tf.constant(x))) for name, gelu in ACTIVATIONS.items()}
    assert values == {"gelu": pytest.approx(erf), "gelu_new": pytest.approx(tanh)}
    assert erf != pytest.approx(tanh, abs=1e-4)


def test_activation_reaches_encoder_and_head() -> None:
    exact = build_model(tiny_config())
    tanh = build_model(tiny_config(model__hidden_act="gelu_new"))
    assert weights_sha256(exact) == weights_sha256(tanh)
    encoder = exact.encoder_network.transformer_layers[0]
    assert encoder._inner_activation is ACTIVATIONS["gelu"]
    assert exact.masked_lm.activation is ACTIVATIONS["gelu"]
    assert tanh.masked_lm.activation is ACTIVATIONS["gelu_new"]
    difference = exact(inputs())["mlm_logits"] - tanh(inputs())["mlm_logits"]
    assert float(tf.reduce_max(tf.abs(difference))) > 0


def test_equal_seeds_give_equal_weights() -> None:
    first, again, other = (
        weights_sha256(build_model(tiny_config(training__random_seed=seed))) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_shapes_are_the_configured_ones() -> None:
    model = build_model(tiny_config())
    shapes = {name: tuple(v.shape) for name, v in named_variables(model).items()}
    assert shapes["bert_encoder/word_embeddings/embeddings"] == (320, 32)
    assert shapes["bert_encoder/position_embedding/embeddings"] == (32, 32)
    assert shapes["bert_encoder/type_embeddings/embeddings"] == (2, 32)
    assert model(inputs())["mlm_logits"].shape == (3, 4, 320)


def test_only_the_pooler_has_no_gradient() -> None:
    model = build_model(tiny_config())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs(), training=True)["mlm_logits"] ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    without = {
        variable.name
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
        if gradient is None
    }
    trained = {variable.name for variable in trained_variables(model, tiny_config())}
    assert without == {v.name for v in model.trainable_variables} - trained
    assert without == {
        "bert_encoder/pooler_transform/kernel:0",
        "bert_encoder/pooler_transform/bias:0",
    }


def test_bfloat16_is_the_arithmetic_and_not_the_weights() -> None:
    model = build_model(tiny_config(training__mixed_precision_dtype="bfloat16"))
    assert model(inputs())["mlm_logits"].dtype == tf.bfloat16
    assert {variable.dtype for variable in model.variables} == {tf.float32}
    # The policy was for this model alone.
    assert build_model(tiny_config())(inputs())["mlm_logits"].dtype == tf.float32
