"""The training step: equal on one replica and on several, and robust at its edges."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from tests.training.conftest import REPLICAS
from tests.training.corpora import TinyStore, tiny_config
from training import corpus, data
from training.dropout import make_dropout_stateless
from training.model import build_model, named_variables, trained_variables
from training.optimizers import build_optimizer
from training.records import RecordReader
from training.step import StepMetrics, make_replica_step, make_train_loop


def train(
    strategy: tf.distribute.Strategy, config: PipelineConfig, reader: RecordReader, steps: int
) -> tuple[dict[str, np.ndarray], StepMetrics]:
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model))
    loop = make_train_loop(strategy, model, optimizer, config.optimizer.clip_norm)
    batches = iter(data.training_dataset(reader, config, 0, strategy))
    metrics = loop(batches, tf.constant(steps))
    weights = {name: variable.numpy() for name, variable in named_variables(model).items()}
    return weights, StepMetrics(*(value.numpy() for value in metrics))


@pytest.fixture
def reader(tiny: TinyStore) -> RecordReader:
    uri = tiny.partition("2026-01-01")
    return RecordReader(corpus.training_sources([uri], tiny.layout, tiny.config))


def test_replicas_do_not_change_the_training(reader: RecordReader) -> None:
    config = tiny_config()
    one = tf.distribute.OneDeviceStrategy("/cpu:0")
    several = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
    weights, metrics = train(one, config, reader, 8)
    split_weights, split_metrics = train(several, config, reader, 8)

    assert metrics == pytest.approx(split_metrics, rel=1e-5)
    assert metrics.tokens == split_metrics.tokens
    for name, value in weights.items():
        np.testing.assert_allclose(split_weights[name], value, atol=2e-5, err_msg=name)
    start = named_variables(build_model(config))["bert_encoder/word_embeddings/embeddings"].numpy()
    moved = np.abs(weights["bert_encoder/word_embeddings/embeddings"] - start).max()
    assert moved > 1e-3, "nothing was trained"


def test_batch_without_predictions_changes_little_and_divides_by_nothing() -> None:
    config = tiny_config(optimizer__weight_decay_rate=0.0)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model))
    before = {name: variable.numpy() for name, variable in named_variables(model).items()}
    rows, slots = tf.zeros([2, 16], tf.int32), tf.zeros([2, 4], tf.int32)
    batch = {
        "input_word_ids": rows,
        "input_mask": rows,
        "input_type_ids": rows,
        "masked_lm_positions": slots,
        "masked_lm_ids": slots,
        "masked_lm_weights": tf.zeros([2, 4]),
    }
    batches = iter(tf.data.Dataset.from_tensors((batch,)).repeat())
    loop = make_train_loop(strategy, model, optimizer, config.optimizer.clip_norm)
    metrics = StepMetrics(*(float(value) for value in loop(batches, tf.constant(2))))

    assert metrics == (0.0, 0.0, 0.0, 0.0)
    for name, variable in named_variables(model).items():
        np.testing.assert_array_equal(variable.numpy(), before[name])


def test_number_of_steps_does_not_compile_again(reader: RecordReader) -> None:
    config = tiny_config()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model))
    loop = make_train_loop(strategy, model, optimizer, config.optimizer.clip_norm)
    batches = iter(data.training_dataset(reader, config, 0, strategy))
    for steps in (1, 3, 2):
        loop(batches, tf.constant(steps))
    assert isinstance(loop, tf.types.experimental.PolymorphicFunction)
    assert loop.experimental_get_tracing_count() == 1
    assert int(optimizer.iterations) == 6


def test_step_compiles_to_one_static_program(reader: RecordReader) -> None:
    # What a TPU needs: every shape known, nothing that calls back to the host.
    config = tiny_config(model__hidden_dropout_prob=0.1, training__mixed_precision_dtype="bfloat16")
    model = build_model(config)
    optimizer = build_optimizer(config, trained_variables(model))
    make_dropout_stateless(model, 1, optimizer.iterations)
    step = tf.function(make_replica_step(model, optimizer, 1.0), jit_compile=True)
    device = tf.distribute.OneDeviceStrategy("/cpu:0")
    (batch,) = next(iter(data.training_dataset(reader, config, 0, device)))
    metrics = step(batch)
    assert all(value.shape == () for value in metrics)
    assert float(metrics.loss_sum) / float(metrics.masked_tokens) == pytest.approx(5.77, abs=0.2)
    assert int(optimizer.iterations) == 1
