"""RoBERTa through the trainer: prepared, trained with an interruption, exported, fine-tuned."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from pipeline_config import ConfigError
from pipeline_store import uris
from pipeline_store.formats import ModelExports
from pipeline_store.layout import ExportsLayout
from tests.training.corpora import BPE, ROBERTA, TinyStore, tiny_config
from tests.training.finetuning.text_tasks import (
    folder_of,
    layout_of,
    make_store,
    scored_texts,
    train_run,
)
from tests.training.jobs import USER_ERROR, result, train, train_until
from trained_models.errors import UserError
from training import export_classifier, export_model, import_model, predict, serve_check
from training.architectures.models import build_model, named_variables
from training.finetuning.exporting.hugging_face import added_layers, write_weights
from training.finetuning.model import build_classifier
from training.importing.inspection import inspect
from training.importing.loading import InitialModel
from training.model.checkpoints import load_weights

CONFIG = tiny_config(
    **ROBERTA,
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
    said = json.loads((folder / "config.json").read_text())
    assert said["max_position_embeddings"] == CONFIG.model.max_position_embeddings + 2
    assert (said["type_vocab_size"], said["pad_token_id"]) == (1, 1)
    assert said["layer_norm_eps"] == 1e-5
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert tokenizer["model_input_names"] == ["input_ids", "attention_mask"]
    assert tokenizer["mask_token"] == "<mask>"  # noqa: S105
    assert json.loads((folder / "vocab.json").read_text())["<pad>"] == 1
    assert (folder / "merges.txt").read_text().startswith("#version: 0.2\na ")
    encoded = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("aB <mask>")
    assert encoded.ids == [0, BPE.ids["aB"], 299, 2]
    card = (folder / "README.md").read_text()
    assert "RoBERTa" in card
    assert "It is a <mask>." in card

    saved = tf.saved_model.load(str(Path(exports.root, formats["saved_model"].folder))).signatures
    assert sorted(saved) == ["encode", "mlm_logits", "serving_default"]

    trained, imported = build_model(CONFIG), build_model(CONFIG)
    load_weights(trained, whole.training.root)
    table = load_weights(imported, InitialModel(str(folder), CONFIG.model, BPE.tokens))
    assert table.fits
    assert not table.new
    for name, variable in named_variables(trained).items():
        np.testing.assert_array_equal(named_variables(imported)[name], variable, err_msg=name)

    found = inspect(str(folder))
    assert found.settings["model.architecture"] == "roberta"
    assert found.settings["model.max_position_embeddings"] == CONFIG.model.max_position_embeddings
    assert found.settings["vocabulary.uri"] == f"{folder}/tokenizer.json"
    assert found.settings["vocabulary.kind"] == "bpe"
    assert found.settings["vocabulary.do_lower_case"] is False

    # A pooler of random numbers, as published folders have; and two types of segments.
    tensors = load_file(folder / "model.safetensors")
    tensors["roberta.pooler.dense.weight"] = np.ones((32, 32), np.float32)
    save_file(tensors, folder / "model.safetensors")
    assert load_weights(imported, InitialModel(str(folder), CONFIG.model, BPE.tokens)).fits
    (folder / "config.json").write_text(json.dumps(said | {"type_vocab_size": 2}))
    with pytest.raises(UserError, match="type_vocab_size is another than 1"):
        load_weights(imported, InitialModel(str(folder), CONFIG.model, BPE.tokens))
    assert import_model.main([str(folder)]) == USER_ERROR


def test_neither_segments_nor_padding_matter() -> None:
    model, ids = build_model(CONFIG), tf.constant([[0, 7, 8, 2], [0, 9, 2, 1]])
    rows = {
        "input_word_ids": ids,
        "input_mask": tf.cast(ids != 1, tf.int32),
        "input_type_ids": tf.zeros_like(ids),
    }
    other = rows | {"input_type_ids": tf.ones_like(ids)}
    states = [model.encoder_network(r)["sequence_output"].numpy() for r in (rows, other)]
    np.testing.assert_array_equal(*states)
    short = {name: values[1:, :3] for name, values in rows.items()}
    alone = model.encoder_network(short)["sequence_output"].numpy()
    np.testing.assert_allclose(states[0][1:, :3], alone, atol=1e-6)


def test_positions_begin_behind_that_of_padding() -> None:
    model = build_model(CONFIG)
    (table,) = [v for n, v in named_variables(model).items() if "position_embedding" in n]
    assert table.shape[0] == CONFIG.model.max_position_embeddings + 2
    words = tf.zeros([1, 4, CONFIG.model.hidden_size])
    layer = model.encoder_network._position_embedding_layer
    found = layer(words, input_mask=tf.constant([[1, 1, 1, 0]]))
    np.testing.assert_array_equal(found[0], tf.gather(table, [2, 3, 4, 1]))


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"segment_pair needs .*=roberta"):
        tiny_config(**ROBERTA, masking__packing="segment_pair")
    with pytest.raises(ConfigError, match=r"wordpiece is not what model.architecture=roberta"):
        tiny_config(model__architecture="roberta")
    with pytest.raises(ConfigError, match=r"bpe is not what model.architecture=bert"):
        tiny_config(vocabulary__kind="bpe", vocabulary__do_lower_case=False)
    with pytest.raises(ConfigError, match=r"do_lower_case: true has no meaning"):
        tiny_config(**ROBERTA | {"vocabulary__do_lower_case": True})


def test_a_classifier_has_a_first_layer_of_its_own(tmp_path: Path) -> None:
    classifier = build_classifier(CONFIG, 3, 0.0)
    assert [*added_layers(CONFIG.model, classifier)] == ["classifier.dense", "classifier.out_proj"]
    write_weights(tmp_path, CONFIG.model, classifier)
    tensors = load_file(tmp_path / "model.safetensors")
    width = CONFIG.model.hidden_size
    assert tensors["classifier.dense.weight"].shape == (width, width)
    assert tensors["classifier.out_proj.weight"].shape == (3, width)
    assert "roberta.embeddings.word_embeddings.weight" in tensors
    assert not any("lm_head" in name for name in tensors)


@pytest.mark.thorough
def test_pairs_are_fine_tuned_exported_and_predicted(tmp_path: Path) -> None:
    run = train_run(
        make_store(tmp_path / "store", "bpe"),
        "classification",
        pairs=True,
        vocabulary_kind="bpe",
    )
    both = ["--format", "hugging_face", "--format", "saved_model"]
    assert export_classifier.main([*run.arguments, *both]) == 0
    record = ModelExports.load(layout_of(run).record)
    assert record.left_out == {}
    for format_ in record.formats.values():
        assert format_.check.same_tokens > 0.8 * format_.check.examples
    folder = folder_of(run, "hugging_face")
    assert "RobertaForSequenceClassification" in (folder / "config.json").read_text()
    saved = tf.saved_model.load(str(folder_of(run, "saved_model"))).signatures
    assert sorted(saved) == ["logits", "serving_default"]
    assert serve_check.main(["--model", str(folder_of(run, "saved_model"))]) != 0

    texts, outputs = scored_texts(run)
    lines = [json.dumps({"text": first, "second": second}) for first, second in texts]
    asked, answers = tmp_path / "asked.jsonl", tmp_path / "answers.tsv"
    uris.write(str(asked), "\n".join(lines).encode())
    words = ["--task", run.task, "--input", str(asked), "--output", str(answers)]
    assert predict.main([*run.arguments, *words]) == 0
    with answers.open(newline="") as file:
        rows = list(csv.reader(file, "excel-tab"))
    found = np.array([[float(share) for share in row[4:7]] for row in rows[1:]])
    wanted = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
