"""What becomes of an encoder's weights when a classifier is built on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline_config import PipelineConfig
from tests.training.corpora import TOKENS, TinyStore, tiny_config
from tests.training.jobs import train
from tests.training.pretrained import (
    SETTINGS,
    batch,
    bert_outputs,
    bert_weights,
    write_hugging_face,
)
from trained_models import artifacts
from training.architectures.models import named_variables
from training.finetuning.encoder import architecture
from training.finetuning.model import build_classifier
from training.finetuning.scoring import mean_hidden_states
from training.finetuning.task_data import Examples
from training.importing.loading import InitialModel
from training.importing.tensorflow_checkpoints import keys_by_name
from training.model.checkpoints import load_encoder


def stored(training: str, folder: Path) -> dict[str, np.ndarray]:
    prefix = artifacts.fetch_model(artifacts.model_files(training), folder)
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(key) for name, key in keys_by_name(reader).items()}


def check_loaded(training: str, config: PipelineConfig, folder: Path) -> None:
    """Check that an encoder gets all that is stored of it, and a classifier nothing."""
    model = build_classifier(config, 3, 0.0)
    before = {name: v.numpy() for name, v in named_variables(model).items()}
    source = InitialModel(training, config.model, tuple(TOKENS))
    table = load_encoder(model.encoder_network, source)
    assert table.new == []
    # Here the pooler is trained.
    assert "pooler" not in "\n".join(line for line in str(table).splitlines() if "  " not in line)
    weights = stored(training, folder)
    for name, variable in named_variables(model).items():
        drawn = "classifier" in name
        np.testing.assert_array_equal(variable, before[name] if drawn else weights[name])
        assert drawn == (name not in table.loaded)


def test_all_of_it_is_loaded(pretrained: tuple[TinyStore, str], tmp_path: Path) -> None:
    # The pooler too, which masked LM alone leaves as it was: a lineage may have begun with a
    # trained one, and what it began with is fine-tuned with it.
    store, training = pretrained
    check_loaded(training, store.config, tmp_path)
    assert architecture(training) == store.config.model


def test_the_head_of_next_sentences_is_dropped(tmp_path: Path) -> None:
    config = tiny_config(masking__packing="segment_pair", training__train_steps=4)
    store = TinyStore.create(tmp_path / "store", config)
    run = store.run("pairs")
    assert train(store, run, store.partition("2026-01-01")) == 0
    check_loaded(run.training.root, config, tmp_path / "files")


def test_foreign_weights_give_the_foreign_hidden_states(tmp_path: Path) -> None:
    weights = bert_weights()
    uri = write_hugging_face(tmp_path / "hf", weights)
    config = tiny_config(**SETTINGS)
    model = build_classifier(config, 3, 0.0)
    table = load_encoder(model.encoder_network, InitialModel(uri, config.model, tuple(TOKENS)))
    assert table.new == []
    assert not any("masked-LM" in note for note in table.notes)

    inputs = {name: value for name, value in batch().items() if name != "masked_lm_positions"}
    states = bert_outputs(weights, batch())["encoder_outputs"]
    np.testing.assert_allclose(
        model.encoder_network(inputs)["sequence_output"], states[-1], atol=1e-4
    )
    forward = mean_hidden_states(
        model.encoder_network, tf.distribute.OneDeviceStrategy("/cpu:0"), batch_size=2
    )
    mask = inputs["input_mask"][:, :, None]
    expected = (states[-1] * mask).sum(axis=1) / mask.sum(axis=1)
    np.testing.assert_allclose(forward(Examples(inputs, None)), expected, atol=1e-4)
