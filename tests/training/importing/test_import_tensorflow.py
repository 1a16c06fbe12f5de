"""Weights of TensorFlow checkpoints, Google's and tf-models', written by their own libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import exp_factory
from official.legacy.bert import configs
from official.modeling.hyperparams import params_dict
from official.nlp.configs import pretraining_experiments  # noqa: F401 - registers them
from official.nlp.modeling.layers import ClassificationHead
from official.nlp.modeling.models import BertPretrainerV2
from official.nlp.modeling.networks import BertEncoderV2
from official.nlp.tools import tf2_bert_encoder_checkpoint_converter as converter

from tests.training.corpora import TOKENS
from tests.training.damages import flip
from tests.training.importing.test_import_hugging_face import CLOSE, distance, load, only, without
from tests.training.pretrained import (
    SIZES,
    Weights,
    batch,
    bert_outputs,
    bert_weights,
    google_weights,
    tanh_gelu,
    write_google,
    write_vocabulary,
)
from trained_models.errors import BadDataError, UserError

GELU_NEW = {"model__hidden_act": "gelu_new"}


def expected(*, next_sentence: bool = False) -> Weights:
    outputs = bert_outputs(bert_weights(), batch(), tanh_gelu)
    return outputs if next_sentence else without(outputs, "next_sentence")


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the prefix of a checkpoint of Google's BERT; tests must not change it."""
    return write_google(tmp_path_factory.mktemp("google") / "uncased_L-2", bert_weights())


def test_outputs_of_googles_bert(google: str) -> None:
    table, model = load(google, masking__packing="segment_pair", **GELU_NEW)
    assert (table.new, table.dropped) == ([], [])
    assert distance(model, expected(next_sentence=True)) < CLOSE


def test_gelu_of_googles_bert_is_the_tanh_form(google: str) -> None:
    with pytest.raises(UserError, match=r"model.hidden_act is 'gelu_new' there and 'gelu' here"):
        load(google)


def test_optimizer_state_is_not_used_and_told(tmp_path: Path) -> None:
    weights = bert_weights()
    prefix = write_google(tmp_path / "g", weights)
    tensors = google_weights(weights)
    tensors |= {f"{name}/adam_m": value for name, value in tensors.items()}
    tensors |= {"global_step": np.array(7)}
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    table, model = load(prefix, **GELU_NEW)
    assert f"{len(google_weights(weights)) + 1} tensors of its optimizer are not used" in str(table)
    assert distance(model, expected()) < CLOSE


def test_without_its_configuration_googles_bert_is_refused(tmp_path: Path) -> None:
    prefix = write_google(tmp_path / "g", bert_weights())
    Path(prefix).with_name("bert_config.json").unlink()
    with pytest.raises(UserError, match=r"no bert_config\.json beside it.*number of heads"):
        load(prefix, **GELU_NEW)


@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00001", ".meta"])
def test_a_file_of_a_checkpoint_is_answered_with_its_prefix(google: str, ending: str) -> None:
    with pytest.raises(UserError, match=rf"Give the prefix: {google}$"):
        load(f"{google}{ending}")
    with pytest.raises(UserError, match=rf"TensorFlow checkpoints in it; give {google}$"):
        load(str(Path(google).parent))


@pytest.mark.parametrize("damage", ["missing", "cut short", "flipped"])
def test_damaged_checkpoints_are_refused(tmp_path: Path, damage: str) -> None:
    prefix = write_google(tmp_path / "g", bert_weights())
    data = Path(f"{prefix}.data-00000-of-00001")
    if damage == "missing":
        data.unlink()
    elif damage == "cut short":
        data.write_bytes(data.read_bytes()[:1000])
    else:
        flip(data)
    with pytest.raises(BadDataError, match=rf"{prefix} cannot be read as a TensorFlow checkpoint"):
        load(prefix, **GELU_NEW)


# tf-models


def head() -> ClassificationHead:
    return ClassificationHead(inner_dim=SIZES["hidden_size"], num_classes=2, name="next_sentence")


def pretrainer(heads: list[ClassificationHead] | None = None) -> BertPretrainerV2:
    """Return tf-models' own model, with its own default for gelu, the tanh form."""
    encoder = BertEncoderV2(
        vocab_size=SIZES["vocab_size"],
        hidden_size=SIZES["hidden_size"],
        num_layers=SIZES["num_hidden_layers"],
        num_attention_heads=SIZES["num_attention_heads"],
        inner_dim=SIZES["intermediate_size"],
        max_sequence_length=SIZES["max_position_embeddings"],
        type_vocab_size=SIZES["type_vocab_size"],
    )
    activation = tf_keras.layers.Activation(lambda x: tf_keras.activations.gelu(x, True))
    model = BertPretrainerV2(encoder, mlm_activation=activation, classification_heads=heads)
    model({name: tf.constant(value) for name, value in batch().items()})
    # Biases and norms are zeros and ones, which would look alike wherever they are put.
    random = np.random.default_rng(5)
    for variable in model.variables:
        variable.assign(variable + random.normal(0, 0.2, variable.shape).astype(np.float32))
    return model


def outputs_of(model: BertPretrainerV2) -> Weights:
    outputs = model({name: tf.constant(value) for name, value in batch().items()}, training=False)
    names = ("encoder_outputs", "mlm_logits", "next_sentence")
    return {name: np.stack(outputs[name]) for name in names if name in outputs}


def save(folder: Path, **objects: Any) -> str:
    """Save as users of tf-models do, with a vocabulary beside."""
    folder.mkdir()
    write_vocabulary(folder, TOKENS)
    return str(tf.train.Checkpoint(**objects).save(str(folder / "ckpt")))


@pytest.mark.parametrize("keys", ["model", "parts", "everything"])
def test_outputs_of_tf_models(tmp_path: Path, keys: str) -> None:
    model = pretrainer()
    if keys == "everything":
        model.compile(optimizer=tf_keras.optimizers.Adam())
        model.optimizer.build(model.trainable_variables)
    step = tf.Variable(3, dtype=tf.int64)
    objects: dict[str, dict[str, Any]] = {
        "model": {"model": model},
        "parts": model.checkpoint_items,
        "everything": model.checkpoint_items | {"model": model, "global_step": step},
    }
    table, ours = load(save(tmp_path / "tfm", **objects[keys]), **GELU_NEW)
    assert (table.new, table.dropped) == ([], [])
    assert "nothing tells which gelu they were trained with" in str(table)
    assert distance(ours, outputs_of(model)) < CLOSE


def test_an_encoder_of_tf_models(tmp_path: Path) -> None:
    model = pretrainer()
    prefix = save(tmp_path / "tfm", encoder=model.encoder_network)
    with pytest.raises(UserError, match=r"set model\.init_encoder_only=true"):
        load(prefix, **GELU_NEW)
    _, ours = load(prefix, model__init_encoder_only=True, **GELU_NEW)
    assert distance(ours, only(outputs_of(model), "encoder_outputs")) < CLOSE


def test_the_pooler_of_tf_models_next_sentence_head_is_the_one_that_counts(tmp_path: Path) -> None:
    model = pretrainer([head()])
    prefix = save(tmp_path / "tfm", model=model, **model.checkpoint_items)
    table, ours = load(prefix, masking__packing="segment_pair", **GELU_NEW)
    assert "a pooler of its own" in str(table)
    assert distance(ours, outputs_of(model)) < CLOSE


def test_another_shape_is_refused(tmp_path: Path) -> None:
    prefix = save(tmp_path / "tfm", model=pretrainer())
    with pytest.raises(UserError, match=r"query/kernel: \[32, 4, 8\] .* \[32, 2, 16\] is needed"):
        load(prefix, model__num_attention_heads=2, **GELU_NEW)


def test_two_models_in_one_checkpoint_are_refused(tmp_path: Path) -> None:
    prefix = save(tmp_path / "tfm", model=pretrainer(), teacher=pretrainer())
    with pytest.raises(BadDataError, match="holds more than one model"):
        load(prefix, **GELU_NEW)


@pytest.mark.parametrize("form", ["encoder", "pretrainer"])
def test_outputs_after_tf_models_own_conversion(tmp_path: Path, google: str, form: str) -> None:
    config = configs.BertConfig(**SIZES, hidden_act="gelu")
    target = tmp_path / "converted"
    name = "encoder" if form == "encoder" else "model"
    converter.convert_checkpoint(config, str(target / "ckpt"), google, name, form)
    write_vocabulary(target, TOKENS)
    description = Path(google).with_name("bert_config.json")
    (target / description.name).write_bytes(description.read_bytes())
    alone = form == "encoder"
    _, ours = load(str(target / "ckpt-1"), model__init_encoder_only=alone, **GELU_NEW)
    wanted = only(expected(), "encoder_outputs") if alone else expected()
    assert distance(ours, wanted) < CLOSE


def write_params(folder: Path, **encoder: Any) -> None:
    """Write the configuration of an experiment as tf-models' trainer does."""
    params = exp_factory.get_exp_config("bert/pretraining")
    bert = params.task.model.encoder.bert
    names = {"num_hidden_layers": "num_layers"}
    bert.override({names.get(name, name): size for name, size in SIZES.items()} | encoder)
    params_dict.save_params_dict_to_yaml(params, str(folder / "params.yaml"))


def test_the_experiments_configuration_tells_the_architecture(tmp_path: Path) -> None:
    model = pretrainer()
    prefix = save(tmp_path / "tfm", model=model)
    write_params(tmp_path / "tfm")
    with pytest.raises(UserError, match=r"params\.yaml\): model.hidden_act is 'gelu_new' there"):
        load(prefix)
    table, ours = load(prefix, **GELU_NEW)
    assert "WARNING" not in str(table)
    assert distance(ours, outputs_of(model)) < CLOSE


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm_first": True}, "norm_first is true"),
        ({"hidden_activation": "relu"}, "hidden_act is none of gelu, "),
        ({"embedding_size": 8}, "embedding_size is another than hidden_size"),
    ],
)
def test_encoders_of_another_kind_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    prefix = save(tmp_path / "tfm", variable=tf.Variable(1.0))
    write_params(tmp_path / "tfm", **settings)
    with pytest.raises(UserError, match=message):
        load(prefix, **GELU_NEW)


def test_a_configuration_that_is_none_is_refused(tmp_path: Path) -> None:
    prefix = save(tmp_path / "tfm", variable=tf.Variable(1.0))
    Path(prefix).with_name("params.yaml").write_text("task: {model: 3}\n")
    with pytest.raises(UserError, match="no experiment configuration of tf-models"):
        load(prefix)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    prefix = save(tmp_path / "tfm", variable=tf.Variable([1.0], name="weight"))
    with pytest.raises(UserError, match="among its 1, so it is no BERT of tf-models"):
        load(prefix)
