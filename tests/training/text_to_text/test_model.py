"""A T5 model has the weights that its folder says, and its masks depend on the step alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.training.text_to_text.models import random_model, random_rows, write_model
from tests.training.text_to_text.vocabularies import sizes
from trained_models.errors import UserError
from trained_models.text_to_text.sizes import SOURCE, TARGET, Form, configuration, describe
from trained_models.text_to_text.weights import read_weights, weights
from training.architectures.t5.text_to_text import TextToText
from training.model.dropout import make_dropout_stateless

EACH = pytest.mark.parametrize("form", ["1.0", "1.1"])


@EACH
def test_every_variable_is_a_weight_of_its_shape(form: Form) -> None:
    model = random_model(form)
    variables = model.variables_by_name()
    assert {w.variable: w.shape for w in weights(model.sizes)} == {
        name: tuple(variable.shape) for name, variable in variables.items()
    }
    assert len({w.tensor for w in weights(model.sizes)}) == len(variables)


@EACH
def test_a_folder_comes_back_bit_for_bit(form: Form, tmp_path: Path) -> None:
    model = write_model(tmp_path / "first", form)
    found = describe(str(tmp_path / "first"))
    assert found == model.sizes
    values = read_weights(str(tmp_path / "first"), found)
    again = TextToText(found)
    again.set_weights_by_name(values)
    for name, value in model.values().items():
        np.testing.assert_array_equal(again.values()[name], value)


def test_a_missing_output_layer_is_the_input_embedding(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "1.1")
    file = tmp_path / "model/model.safetensors"
    tensors = load_file(file)
    del tensors["lm_head.weight"]
    save_file(tensors, file)
    values = read_weights(str(tmp_path / "model"), model.sizes)
    np.testing.assert_array_equal(values["decoder/logits/kernel"], values["shared/embedding"].T)


def test_weights_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "1.0")
    file = tmp_path / "model/model.safetensors"
    tensors = load_file(file)
    tensors["encoder.final_layer_norm.bias"] = tensors.pop("encoder.final_layer_norm.weight")
    save_file(tensors, file)
    with pytest.raises(UserError, match=r"final_layer_norm\.bias is no weight.*weight is missing"):
        read_weights(str(tmp_path / "model"), model.sizes)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "bart"}, "model_type is none of"),
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj has to be"),
        ({"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon has to be 1e-06"),
        ({"tie_word_embeddings": False}, "say otherwise"),
        ({"d_model": None, "num_heads": {}, "num_layers": []}, None),
    ],
)
def test_what_is_no_t5_is_refused(
    changed: dict[str, object], message: str | None, tmp_path: Path
) -> None:
    import json

    content = configuration(sizes("1.0"), 0.1) | changed
    if message is None:
        content.pop("d_ff")
        message = "is no configuration of a T5"
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        describe(str(tmp_path))


def test_masks_are_a_function_of_the_step() -> None:
    model = random_model("1.1", dropout_rate=0.5)
    step = tf.Variable(3, dtype=tf.int64)
    make_dropout_stateless(model, 1, step)
    inputs = {SOURCE: random_rows(2, 6), TARGET: random_rows(2, 5)}
    first = model(inputs, training=True).numpy()
    np.testing.assert_array_equal(model(inputs, training=True).numpy(), first)
    step.assign(4)
    assert np.abs(model(inputs, training=True).numpy() - first).max() > 1e-3
    plain = model(inputs, training=False).numpy()
    np.testing.assert_array_equal(model(inputs, training=False).numpy(), plain)


def test_each_place_of_dropout_has_masks_of_its_own() -> None:
    model = random_model("1.0", dropout_rate=0.5)
    # Of each layer: attention's weights and outputs, the inner and the outer of the feed-forward
    # part; at the ends of encoder and decoder two each, and one that tf-models does not use.
    layers = 2 * 4 + 3 * 6
    assert make_dropout_stateless(model, 1, tf.Variable(0, dtype=tf.int64)) == layers + 5
