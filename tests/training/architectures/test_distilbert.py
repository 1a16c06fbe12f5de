"""DistilBERT through the trainer: trained with an interruption, exported, imported, fine-tuned."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from pipeline_config import ConfigError
from pipeline_store.formats import ModelExports
from pipeline_store.layout import ExportsLayout
from tests.training.corpora import TOKENS, TinyStore, tiny_config
from tests.training.finetuning.text_tasks import (
    folder_of,
    layout_of,
    make_store,
    train_run,
)
from tests.training.jobs import result, train, train_until
from trained_models.errors import UserError
from training import export_classifier, export_model
from training.architectures.models import build_model, named_variables
from training.finetuning.exporting.hugging_face import added_layers, write_weights
from training.finetuning.model import build_classifier
from training.importing.loading import InitialModel
from training.model.checkpoints import check_architecture, load_weights

CONFIG = tiny_config(
    model__architecture="distilbert",
    model__hidden_dropout_prob=0.1,
    training__train_steps=20,
    training__checkpoint_interval=10,
    training__steps_per_loop=10,
)


@pytest.mark.thorough
def test_it_goes_on_bit_by_bit_and_comes_back_from_its_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TinyStore.create(tmp_path / "store", CONFIG)
    day, whole, cut = store.partition("2026-01-01"), store.run("whole"), store.run("cut")
    assert train(store, whole, day) == 0
    assert train_until(1, monkeypatch, store, cut, day) != 0
    assert train(store, cut, day) == 0
    assert result(cut).weights_sha256 == result(whole).weights_sha256

    out = tmp_path / "out"
    arguments = ["--store", store.layout.root, "--config", whole.config, "--output", str(out)]
    assert export_model.main([*arguments, "--model", whole.training.root]) == 0
    exports = ExportsLayout(str(out))
    formats = ModelExports.load(exports.record).formats
    folder = Path(exports.root, formats["hugging_face"].folder)
    assert json.loads((folder / "config.json").read_text())["dim"] == CONFIG.model.hidden_size
    assert not any("token_type" in name for name in load_file(folder / "model.safetensors"))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert tokenizer["model_input_names"] == ["input_ids", "attention_mask"]
    assert "DistilBERT" in (folder / "README.md").read_text()

    trained, imported = build_model(CONFIG), build_model(CONFIG)
    load_weights(trained, whole.training.root)
    table = load_weights(imported, InitialModel(str(folder), CONFIG.model, tuple(TOKENS)))
    assert table.fits
    assert not table.new
    for name, variable in named_variables(trained).items():
        np.testing.assert_array_equal(named_variables(imported)[name], variable, err_msg=name)
    with pytest.raises(UserError, match=r"model.architecture is 'distilbert' there and 'bert'"):
        check_architecture(str(folder), tiny_config(), "")


def test_segments_do_not_matter() -> None:
    model, ids = build_model(CONFIG), tf.constant([[2, 7, 8, 3], [2, 9, 3, 0]])
    rows = {
        "input_word_ids": ids,
        "input_mask": tf.cast(ids > 0, tf.int32),
        "input_type_ids": tf.zeros_like(ids),
    }
    other = rows | {"input_type_ids": tf.ones_like(ids)}
    states = [model.encoder_network(r)["sequence_output"].numpy() for r in (rows, other)]
    np.testing.assert_array_equal(*states)


def test_next_sentences_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"segment_pair needs .*=distilbert"):
        tiny_config(model__architecture="distilbert", masking__packing="segment_pair")


def test_a_classifier_has_a_first_layer_of_its_own(tmp_path: Path) -> None:
    classifier = build_classifier(CONFIG, 3, 0.0)
    assert classifier.own_pooler in classifier.layers
    assert [*added_layers(CONFIG.model, classifier)] == ["pre_classifier", "classifier"]
    write_weights(tmp_path, CONFIG.model, classifier)
    tensors = load_file(tmp_path / "model.safetensors")
    width = CONFIG.model.hidden_size
    assert tensors["pre_classifier.weight"].shape == (width, width)
    assert tensors["classifier.weight"].shape == (3, width)
    assert "distilbert.embeddings.word_embeddings.weight" in tensors
    assert not any("vocab_" in name for name in tensors)


@pytest.mark.thorough
def test_a_task_is_fine_tuned_and_exported(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    run = train_run(store, "classification", pairs=True, architecture="distilbert")
    both = ["--format", "hugging_face", "--format", "saved_model"]
    assert export_classifier.main([*run.arguments, *both]) == 0
    assert ModelExports.load(layout_of(run).record).left_out == {}
    said = json.loads((folder_of(run, "hugging_face") / "config.json").read_text())
    assert said["architectures"] == ["DistilBertForSequenceClassification"]
    saved = tf.saved_model.load(str(folder_of(run, "saved_model"))).signatures
    assert "predict" in saved
