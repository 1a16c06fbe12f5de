"""Our encoder is tf-models' encoder by name and by value; hidden states may be bfloat16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.training.corpora import tiny_config
from tests.training.stepping import random_batch
from training.architectures.bert.layers import layer_norm
from training.architectures.models import build_model, named_variables
from verification.tpu_compile_check.steps import plain_model

BFLOAT16 = {"training__mixed_precision_dtype": "bfloat16"}
TWO_LAYERS = {"model__num_hidden_layers": 2}


def keys(model: tf.Module, folder: Path) -> dict[str, list[int]]:
    """Return names and shapes of all values in a checkpoint of a model."""
    path = tf.train.Checkpoint(model=model, **model.checkpoint_items).write(str(folder / "x"))
    return dict(tf.train.list_variables(path))


@pytest.mark.parametrize("packing", ["doc_sentences", "segment_pair"])
def test_variables_and_checkpoints_are_those_of_tf_models(tmp_path: Path, packing: str) -> None:
    config = tiny_config(**TWO_LAYERS, masking__packing=packing)
    model, plain = build_model(config), plain_model(config)
    shapes, expected = (
        {name: v.shape for name, v in named_variables(one).items()} for one in (model, plain)
    )
    assert shapes == expected
    assert keys(model, tmp_path) == keys(plain, tmp_path)
    assert model.encoder_network.get_config().keys() == plain.encoder_network.get_config().keys()
    assert model.encoder_network.get_config()["num_layers"] == 2


def test_outputs_are_those_of_tf_models() -> None:
    config = tiny_config(**TWO_LAYERS)
    model, plain = build_model(config), plain_model(config)
    for name, variable in named_variables(plain).items():
        draw = np.random.default_rng(list(name.encode()))
        variable.assign(draw.normal(scale=0.2, size=variable.shape))
        named_variables(model)[name].assign(variable)
    found, expected = model(random_batch()), plain(random_batch())
    assert found.keys() == expected.keys()
    assert np.abs(expected["mlm_logits"]).max() > 1.0
    for name in ("sequence_output", "pooled_output", "mlm_logits"):
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5)


@pytest.mark.parametrize(
    ("residual_dtype", "expected"), [("float32", tf.float32), ("bfloat16", tf.bfloat16)]
)
def test_hidden_states_have_the_configured_type(residual_dtype: str, expected: tf.DType) -> None:
    config = tiny_config(**TWO_LAYERS, **BFLOAT16, training__residual_dtype=residual_dtype)
    model = build_model(config)
    states = model.encoder_network(random_batch())["encoder_outputs"]
    assert [state.dtype for state in states] == [expected] * 2
    assert model.encoder_network._embedding_norm_layer.compute_dtype == residual_dtype
    assert {variable.dtype for variable in model.variables} == {tf.float32}


def test_statistics_of_short_hidden_states_are_float32() -> None:
    # Their mean, 250.5, is no bfloat16: the next ones are 250 and 251.
    states = tf.reshape(tf.cast(250 + tf.range(64) % 2, tf.bfloat16), [2, 32])
    found = layer_norm("norm", "mixed_bfloat16")(states)
    assert found.dtype == tf.bfloat16
    expected = 2.0 * (tf.cast(states, tf.float64) - 250.5)
    np.testing.assert_array_equal(tf.cast(found, tf.float64), expected)
