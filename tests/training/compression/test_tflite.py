"""What a TensorFlow Lite file holds is read from the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from trained_models.errors import BadDataError
from training.architectures.activations import ACTIVATIONS, gelu_by_name
from training.compression.tflite import weights_by_type

WEIGHTS = np.ones([32, 64], np.float32)


def converted(*, optimize: bool) -> bytes:
    function = tf.function(
        lambda x: tf.matmul(x, WEIGHTS), input_signature=[tf.TensorSpec([1, 32])]
    ).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
    if optimize:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    found: bytes = converter.convert()
    return found


def test_weights_are_counted_by_type(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    for optimize, name in ((False, "float32"), (True, "int8")):
        path.write_bytes(converted(optimize=optimize))
        assert weights_by_type(path)[name] == 32 * 64


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:40], lambda data: data[8:]]
)
def test_a_damaged_file_is_no_model(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(damage(converted(optimize=False)))  # type: ignore[operator]
    with pytest.raises(BadDataError, match="TensorFlow Lite model"):
        weights_by_type(path)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_an_activation_is_the_same_by_name(name: str) -> None:
    """A converter knows the one form, training takes the other."""
    x = tf.linspace(-6.0, 6.0, 101)
    plain = ACTIVATIONS[name](x)
    with gelu_by_name():
        named = ACTIVATIONS[name](x)
    np.testing.assert_allclose(plain, named, atol=1e-6)
