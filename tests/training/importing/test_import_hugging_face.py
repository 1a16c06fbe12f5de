"""Weights of Hugging Face folders: all spellings give the same outputs, all doubts are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.training.corpora import TOKENS, tiny_config
from tests.training.pretrained import (
    SETTINGS,
    Weights,
    batch,
    bert_outputs,
    bert_weights,
    tanh_gelu,
    write_hugging_face,
    write_safetensors,
)
from trained_models.errors import BadDataError, UserError
from trained_models.loaded_weights import LoadedWeights
from training.architectures.models import build_model, weights_sha256
from training.importing.loading import InitialModel
from training.model import checkpoints

CLOSE = 1e-4


def load(uri: str, **settings: Any) -> tuple[LoadedWeights, Any]:
    """Load weights into a new model; return the table and the model."""
    config = tiny_config(**SETTINGS | settings)
    model = build_model(config)
    initial = InitialModel(uri, config.model, tuple(TOKENS))
    return checkpoints.load_weights(model, initial), model


def distance(model: Any, expected: Weights) -> float:
    """Return the largest difference between a model's outputs and expected ones."""
    rows = batch()
    outputs = model(rows)
    return max(
        float(np.abs(np.stack(outputs[name]) - value).max()) for name, value in expected.items()
    )


def only(weights: Weights, *starts: str) -> Weights:
    return {name: value for name, value in weights.items() if name.startswith(starts)}


def without(weights: Weights, *starts: str) -> Weights:
    return {name: value for name, value in weights.items() if not name.startswith(starts)}


def renamed(weights: Weights, old: str, new: str) -> Weights:
    return {name.replace(old, new): value for name, value in weights.items()}


def with_old_names(weights: Weights) -> Weights:
    weights = renamed(weights, "LayerNorm.weight", "LayerNorm.gamma")
    return renamed(weights, "LayerNorm.bias", "LayerNorm.beta")


def with_second_names(weights: Weights) -> Weights:
    return weights | {
        "cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": weights["cls.predictions.bias"],
        "bert.embeddings.position_ids": np.arange(24)[None],
    }


SPELLINGS: dict[str, Callable[[Weights], Weights]] = {
    "BertForPreTraining": lambda weights: weights,
    "BertForMaskedLM": lambda weights: without(weights, "bert.pooler", "cls.seq"),
    "without bert.": lambda weights: renamed(weights, "bert.", ""),
    "gamma and beta": with_old_names,
    "second names": with_second_names,
    "bias of the decoder": lambda weights: renamed(
        weights, "cls.predictions.bias", "cls.predictions.decoder.bias"
    ),
}


@pytest.mark.parametrize(
    ("spelling", "shards"), [*((name, 1) for name in SPELLINGS), ("second names", 3)]
)
def test_outputs_are_those_of_the_source(tmp_path: Path, spelling: str, shards: int) -> None:
    weights = SPELLINGS[spelling](bert_weights())
    _, model = load(write_hugging_face(tmp_path / "hf", weights, shards=shards))
    expected = without(bert_outputs(bert_weights(), batch()), "next_sentence")
    assert distance(model, expected) < CLOSE


def test_the_other_gelu_gives_other_outputs(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights(), {"hidden_act": "gelu_new"})
    with pytest.raises(UserError, match=r"model.hidden_act is 'gelu_new' there and 'gelu' here"):
        load(uri)
    _, model = load(uri, model__hidden_act="gelu_new")
    expected = without(bert_outputs(bert_weights(), batch(), tanh_gelu), "next_sentence")
    assert distance(model, expected) < CLOSE
    exact = without(bert_outputs(bert_weights(), batch()), "next_sentence")
    assert distance(model, exact) > 10 * CLOSE


def test_the_next_sentence_head_is_loaded_where_it_is_trained(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights())
    table, model = load(uri, masking__packing="segment_pair")
    assert table.has_next_sentence_head
    assert (table.new, table.dropped) == ([], [])
    assert distance(model, bert_outputs(bert_weights(), batch())) < CLOSE

    table, _ = load(uri)
    assert table.dropped == ["next_sentence/logits/bias", "next_sentence/logits/kernel"]
    assert "head dropped" in str(table)


def test_a_missing_pooler_begins_anew_and_is_named(tmp_path: Path) -> None:
    weights = without(bert_weights(), "bert.pooler", "cls.seq")
    table, _ = load(write_hugging_face(tmp_path / "hf", weights))
    assert table.new == ["pooler_transform/bias", "pooler_transform/kernel"]
    assert "There is no pooler" in str(table)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_short_floats_are_read_as_what_they_are(tmp_path: Path, kind: Any) -> None:
    short = {name: value.astype(kind) for name, value in bert_weights().items()}
    _, model = load(write_hugging_face(tmp_path / "hf", short))
    rounded = {name: value.astype(np.float32) for name, value in short.items()}
    expected = without(bert_outputs(rounded, batch()), "next_sentence")
    assert distance(model, expected) < CLOSE


def test_an_encoder_alone_is_loaded_on_purpose_only(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", only(bert_weights(), "bert."))
    with pytest.raises(UserError, match=r"set model\.init_encoder_only=true") as caught:
        load(uri)
    assert "new        cls/predictions/transform/dense/kernel" in str(caught.value)

    table, model = load(uri, model__init_encoder_only=True)
    assert len(table.new) == 5
    assert "the masked-LM head is new" in str(table)
    outputs = bert_outputs(bert_weights(), batch())
    assert distance(model, only(outputs, "encoder_outputs")) < CLOSE
    assert distance(model, only(outputs, "mlm_logits")) > 1


def test_a_head_that_is_there_is_left_out_on_purpose(tmp_path: Path) -> None:
    table, model = load(
        write_hugging_face(tmp_path / "hf", bert_weights()), model__init_encoder_only=True
    )
    assert "cls/predictions/output_bias/bias" in table.dropped
    assert "cls/predictions/output_bias/bias" in table.new
    untrained = build_model(tiny_config(**SETTINGS))
    mine, theirs = (m.masked_lm.dense.kernel.numpy() for m in (model, untrained))
    np.testing.assert_array_equal(mine, theirs)


def test_a_classifier_gives_its_encoder_on_purpose_only(tmp_path: Path) -> None:
    weights = only(bert_weights(), "bert.") | {"classifier.weight": np.ones((3, 32), np.float32)}
    uri = write_hugging_face(tmp_path / "hf", weights)
    with pytest.raises(UserError, match=r"dropped    1 tensors.*\n.*init_encoder_only=true"):
        load(uri)
    table, _ = load(uri, model__init_encoder_only=True)
    assert "1 tensors that have no place here" in table.dropped


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
WRONG: dict[str, tuple[Callable[[Weights], Weights], str]] = {
    "missing tensor": (
        lambda weights: without(weights, QUERY),
        "new        transformer/layer_1/self_attention/query/kernel",
    ),
    "half a head": (
        lambda weights: without(weights, "cls.predictions.transform.dense.bias"),
        r"new        cls/predictions/transform/dense/bias[^$]*\nChoose a model",
    ),
    "half a pooler": (
        lambda weights: without(weights, "bert.pooler.dense.bias"),
        "new        pooler_transform/bias",
    ),
    "extra tensor": (
        lambda weights: weights | {"bert.adapter.weight": np.ones(3, np.float32)},
        "dropped    1 tensors that have no place here",
    ),
    "wrong shape": (
        lambda weights: weights | {QUERY: np.ones((32, 33), np.float32)},
        r"query/kernel: \[32, 33\] in the source, \[32, 32\] is needed here",
    ),
    "fewer positions": (
        lambda weights: (
            weights | {"bert.embeddings.position_embeddings.weight": np.ones((8, 32), np.float32)}
        ),
        r"position_embedding/embeddings: \[8, 32\] in the source",
    ),
    "untied": (
        lambda weights: (
            weights | {"cls.predictions.decoder.weight": np.ones((320, 32), np.float32)}
        ),
        r"decoder\.weight differs from embeddings\.word_embeddings\.weight",
    ),
    "twice": (
        lambda weights: weights | {QUERY.removeprefix("bert."): weights[QUERY]},
        "has a tensor twice, by its old name and its new one or with and without 'bert.' before it",
    ),
    "no embedding": (
        lambda weights: without(weights, "bert.embeddings.word"),
        "has no word embeddings under a name of BERT",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, wrong: str) -> None:
    change, message = WRONG[wrong]
    uri = write_hugging_face(tmp_path / "hf", change(bert_weights()))
    with pytest.raises(UserError, match=message) as caught:
        load(uri)
    assert uri in str(caught.value)


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "another library's model": ({"model_type": "electra"}, "model_type is another than 'bert'"),
    "relative positions": (
        {"position_embedding_type": "relative_key"},
        "position_embedding_type is another than 'absolute'",
    ),
    "another activation": ({"hidden_act": "relu"}, "hidden_act is none of gelu, gelu_python, "),
    "factorized embeddings": ({"embedding_size": 16}, "embedding_size is another than hidden_size"),
    "other sizes": (
        {"num_attention_heads": 8, "intermediate_size": 64},
        r"num_attention_heads is 8 there and 4 here; model.intermediate_size is 64 there and 48",
    ),
}


@pytest.mark.parametrize("config", CONFIGS)
def test_another_architecture_is_refused(tmp_path: Path, config: str) -> None:
    change, message = CONFIGS[config]
    uri = write_hugging_face(tmp_path / "hf", bert_weights(), change)
    with pytest.raises(UserError, match=message) as caught:
        load(uri)
    assert f"{uri}/config.json" in str(caught.value)
    with pytest.raises(UserError, match=message):
        checkpoints.check_architecture(uri, tiny_config(**SETTINGS), "0" * 64)


def test_an_incomplete_configuration_is_refused(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights())
    Path(uri, "config.json").write_text('{"model_type": "bert", "hidden_size": 32}')
    with pytest.raises(UserError, match=r"it lacks vocab_size, num_hidden_layers, .*hidden_act"):
        load(uri)
    Path(uri, "config.json").write_text('{"model_type": ')
    with pytest.raises(UserError, match=r"config\.json is not JSON"):
        load(uri)


def test_other_layer_norms_are_told(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights(), {"layer_norm_eps": 1e-5})
    table, _ = load(uri)
    assert "layer norms add 1e-05 to the variance, those here 1e-12" in str(table)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def git_lfs_pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n")


@pytest.mark.parametrize("damage", [cut_short, git_lfs_pointer])
def test_damaged_files_are_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights())
    damage(Path(uri, "model.safetensors"))
    with pytest.raises(BadDataError, match=rf"model\.safetensors of {uri} cannot be read"):
        load(uri)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    weights = bert_weights()
    weights["bert.pooler.dense.bias"][3] = np.nan
    uri = write_hugging_face(tmp_path / "hf", weights)
    with pytest.raises(BadDataError, match=r"pooler\.dense\.bias of .* not finite"):
        load(uri)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights(), shards=2)
    Path(uri, "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"lacks 1 of the 2 files that model\.safetensors\.index"):
        load(uri)
    Path(uri, "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UserError, match="is not an index of safetensors"):
        load(uri)


def test_other_formats_are_refused_with_what_to_do(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights())
    Path(uri, "model.safetensors").rename(Path(uri, "tf_model.h5"))
    with pytest.raises(UserError, match=r"tf_model\.h5, which is not read.*save_pretrained"):
        load(uri)
    Path(uri, "tf_model.h5").unlink()
    with pytest.raises(UserError, match=r"has no model\.safetensors"):
        load(uri)


def test_nothing_is_changed_by_weights_that_are_refused(tmp_path: Path) -> None:
    config = tiny_config(**SETTINGS)
    model = build_model(config)
    before = weights_sha256(model)
    weights = bert_weights()
    weights["cls.predictions.bias"][0] = np.inf
    folders = {
        "missing": without(bert_weights(), QUERY),
        "infinite": weights,
    }
    for name, content in folders.items():
        uri = write_hugging_face(tmp_path / name, content)
        with pytest.raises((UserError, BadDataError)):
            checkpoints.load_weights(model, InitialModel(uri, config.model, tuple(TOKENS)))
    assert weights_sha256(model) == before


def test_the_files_that_were_loaded_are_told_by_their_hashes(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights())
    table, _ = load(uri)
    record = table.record(uri)
    size = Path(uri, "model.safetensors").stat().st_size
    assert f"model.safetensors: {size:,} bytes, SHA-256 " in record.notes[0]
    assert json.loads(record.to_bytes())["loaded"] == table.loaded


def test_a_model_is_not_compared_by_weights_from_elsewhere(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights())
    with pytest.raises(UserError, match="is not a model of this project"):
        checkpoints.load_weights(build_model(tiny_config(**SETTINGS)), uri)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights(), shards=2)
    second = Path(uri, "model-00002-of-00002.safetensors")
    write_safetensors(second, bert_weights())
    with pytest.raises(UserError, match="twice"):
        load(uri)
