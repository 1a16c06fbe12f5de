"""The oldest test of a trainer: it can learn a few rows by heart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.modeling.models import BertPretrainerV2

from tests.training.corpora import FIRST_WORD, WORDS, TinyStore, tiny_config, training_batches
from tests.training.jobs import result, train
from tests.training.poison import rewrite
from trained_models import record_sources
from training.architectures.models import build_model
from training.input.records import RecordReader
from training.model.checkpoints import load_weights

CONFIG = tiny_config(
    model__hidden_size=64,
    model__num_hidden_layers=2,
    model__intermediate_size=128,
    optimizer__learning_rate=3e-3,
    optimizer__warmup_steps=20,
    training__train_steps=300,
    training__steps_per_loop=100,
    training__checkpoint_interval=300,
    training__global_batch_size=24,
)


@pytest.mark.thorough
def test_rows_without_any_rule_are_learned_by_heart(tiny: TinyStore) -> None:
    store = tiny.using(CONFIG)
    manifest, run = store.partition("2026-01-01", documents=6), store.run("r")
    draw = np.random.default_rng(7)

    def shuffle_words(features: Any) -> None:
        """Let this row alone have words in this order, so that no other one helps to guess it."""
        words = draw.permutation(WORDS) + FIRST_WORD
        for name in ("input_ids", "masked_lm_ids"):
            values = features[name].int64_list.value
            values[:] = [_exchanged(value, words) for value in values]

    for source in record_sources.training_sources([manifest], store.layout, CONFIG):
        rewrite(source, range(source.file.records), shuffle_words)

    assert train(store, run, manifest) == 0
    reader = RecordReader(record_sources.training_sources([manifest], store.layout, CONFIG))
    assert len(reader) == CONFIG.training.global_batch_size
    model = build_model(CONFIG)
    assert accuracy(model, reader) < 0.2
    load_weights(model, run.training.root)
    assert accuracy(model, reader) > 0.95
    assert result(run).final_loss < 0.5


def _exchanged(value: int, words: np.ndarray) -> int:
    return int(words[value - FIRST_WORD]) if 0 <= value - FIRST_WORD < len(words) else value


def accuracy(model: BertPretrainerV2, reader: RecordReader) -> float:
    """Return the share of masked tokens of all records that the model guesses right."""
    device = tf.distribute.get_strategy()
    (batch,) = next(iter(training_batches(reader, CONFIG, device)))
    guesses = tf.argmax(model(batch)["mlm_logits"], axis=-1, output_type=tf.int32)
    right = tf.cast(guesses == batch["masked_lm_ids"], tf.float32) * batch["masked_lm_weights"]
    return float(tf.reduce_sum(right) / tf.reduce_sum(batch["masked_lm_weights"]))
