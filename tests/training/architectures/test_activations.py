"""Values and written-out derivatives of both gelus are TensorFlow's, compiled or not."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from training.architectures.activations import ACTIVATIONS
from training.architectures.one_pass import elementwise_in_one_pass


@pytest.mark.parametrize("name", ["gelu", "gelu_new"])
@pytest.mark.parametrize("where", [contextlib.nullcontext, elementwise_in_one_pass])
def test_values_and_derivatives_are_tensorflows(
    name: str, where: type[contextlib.AbstractContextManager[None]]
) -> None:
    points = tf.linspace(-12.0, 12.0, 4801)
    with where(), tf.GradientTape(persistent=True) as tape:
        tape.watch(points)
        found = ACTIVATIONS[name](points)
        expected = tf_keras.activations.gelu(points, approximate=name == "gelu_new")
        scaled = 3.0 * found
    np.testing.assert_allclose(found, expected, atol=2e-6)
    with where():
        derivative = tape.gradient(scaled, points)
    np.testing.assert_allclose(derivative, 3.0 * tape.gradient(expected, points), atol=2e-5)


def compiled_parts(function: tf.types.experimental.GenericFunction) -> int:
    graph = function.get_concrete_function(tf.TensorSpec([4], tf.float32)).graph
    return sum("_XlaMustCompile" in op.node_def.attr for op in graph.get_operations())


def test_only_a_training_step_is_compiled() -> None:
    @tf.function
    def elsewhere(points: tf.Tensor) -> tf.Tensor:
        return ACTIVATIONS["gelu"](points)

    @tf.function
    def in_a_step(points: tf.Tensor) -> tf.Tensor:
        with elementwise_in_one_pass():
            return ACTIVATIONS["gelu"](points)

    assert compiled_parts(elsewhere) == 0
    assert compiled_parts(in_a_step) == 1
