"""The training step: equal on one replica and on several, and robust at its edges."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from tests.training.conftest import replicas
from tests.training.corpora import TinyStore, tiny_config, training_batches
from trained_models import record_sources
from training.architectures.models import build_model, named_variables, trained_variables
from training.input.records import RecordReader
from training.loop.step import StepMetrics, make_replica_step, make_train_loop
from training.model.dropout import make_dropout_stateless
from training.optimization.optimizers import build_optimizer

PAIRS = {"masking__packing": "segment_pair"}


def train(
    strategy: tf.distribute.Strategy, config: PipelineConfig, reader: RecordReader, steps: int
) -> tuple[dict[str, np.ndarray], StepMetrics]:
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model, config))
    loop = make_train_loop(strategy, model, optimizer, config)
    batches = iter(training_batches(reader, config, strategy))
    metrics = loop(batches, tf.constant(steps))
    weights = {name: variable.numpy() for name, variable in named_variables(model).items()}
    return weights, sums(metrics)


def sums(metrics: StepMetrics) -> StepMetrics:
    """Return the metrics as numbers, without the one that is a time."""
    return StepMetrics(*(float(value) for value in metrics))._replace(input_wait_seconds=0.0)


@pytest.fixture
def reader(tiny: TinyStore) -> RecordReader:
    uri = tiny.partition("2026-01-01")
    return RecordReader(record_sources.training_sources([uri], tiny.layout, tiny.config))


@pytest.fixture
def pairs(tiny: TinyStore) -> RecordReader:
    store = tiny.using(tiny_config(**PAIRS))
    uri = store.partition("2026-01-01")
    return RecordReader(record_sources.training_sources([uri], store.layout, store.config))


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ("pairs", 2),
        pytest.param("reader", 2, marks=pytest.mark.thorough),
        pytest.param("pairs", 8, marks=pytest.mark.thorough),
    ],
)
def test_replicas_do_not_change_the_training(
    rows: str, count: int, request: pytest.FixtureRequest
) -> None:
    reader: RecordReader = request.getfixturevalue(rows)
    config = tiny_config(**(PAIRS if rows == "pairs" else {}))
    weights, metrics = train(replicas(1), config, reader, 8)
    split_weights, split_metrics = train(replicas(count), config, reader, 8)

    assert metrics == pytest.approx(split_metrics, rel=1e-5)
    assert metrics.tokens == split_metrics.tokens
    assert metrics.pairs == (8 * 8 if rows == "pairs" else 0)
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
        optimizer = build_optimizer(config, trained_variables(model, config))
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
    loop = make_train_loop(strategy, model, optimizer, config)
    metrics = sums(loop(batches, tf.constant(2)))

    assert set(metrics) == {0.0}
    for name, variable in named_variables(model).items():
        np.testing.assert_array_equal(variable.numpy(), before[name])


def test_number_of_steps_does_not_compile_again(reader: RecordReader) -> None:
    config = tiny_config()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model, config))
    loop = make_train_loop(strategy, model, optimizer, config)
    batches = iter(training_batches(reader, config, strategy))
    for steps in (1, 3, 2):
        loop(batches, tf.constant(steps))
    assert isinstance(loop, tf.types.experimental.PolymorphicFunction)
    assert loop.experimental_get_tracing_count() == 1
    assert int(optimizer.iterations) == 6


def test_waiting_for_input_is_measured(
    reader: RecordReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that stands still but while a batch is made.
    clock = [100.0]
    monkeypatch.setattr("training.loop.step.time.monotonic", lambda: clock[0])

    def pass_time(number: np.int64) -> np.int64:
        clock[0] += 3.0
        return number

    config, device = tiny_config(), tf.distribute.get_strategy()
    model = build_model(config)
    optimizer = build_optimizer(config, trained_variables(model, config))
    (batch,) = next(iter(training_batches(reader, config, device)))
    made = tf.data.Dataset.range(9).map(
        lambda number: tf.numpy_function(pass_time, [number], tf.int64)
    )
    options = tf.data.Options()
    # No batch is made before it is asked for.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    batches = iter(made.map(lambda number: (batch,)).with_options(options))
    loop = make_train_loop(device, model, optimizer, config)
    metrics = [loop(batches, tf.constant(1)) for _ in range(3)]
    assert [float(m.input_wait_seconds) for m in metrics] == [3.0, 3.0, 3.0]


def test_loss_is_the_mean_over_tokens_and_the_mean_over_rows(pairs: RecordReader) -> None:
    config = tiny_config(**PAIRS, optimizer__clip_norm=1000.0)
    model = build_model(config)
    optimizer = build_optimizer(config, trained_variables(model, config))
    (batch,) = next(iter(training_batches(pairs, config, replicas(1))))
    with tf.GradientTape() as tape:
        outputs = model(batch)
        crossentropy = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        weights = batch["masked_lm_weights"]
        slots = crossentropy(batch["masked_lm_ids"], outputs["mlm_logits"], sample_weight=weights)
        masked_lm = slots * tf.size(weights, tf.float32) / tf.reduce_sum(weights)
        next_sentence = crossentropy(batch["next_sentence_labels"], outputs["next_sentence"])
        loss = masked_lm + next_sentence
    norm = tf.linalg.global_norm(tape.gradient(loss, trained_variables(model, config)))

    metrics = make_replica_step(model, optimizer, config)(batch)
    assert float(metrics.gradient_norm) == pytest.approx(float(norm), rel=1e-5)
    means = metrics.loss_sum / metrics.masked_tokens, metrics.next_sentence_loss_sum / metrics.pairs
    assert [float(m) for m in means] == pytest.approx([float(masked_lm), float(next_sentence)])


@pytest.mark.parametrize("rows", ["pairs", pytest.param("reader", marks=pytest.mark.thorough)])
def test_step_compiles_to_one_static_program(rows: str, request: pytest.FixtureRequest) -> None:
    # What a TPU needs: every shape known, nothing that calls back to the host.
    reader: RecordReader = request.getfixturevalue(rows)
    config = tiny_config(
        model__hidden_dropout_prob=0.1,
        training__mixed_precision_dtype="bfloat16",
        **(PAIRS if rows == "pairs" else {}),
    )
    model = build_model(config)
    optimizer = build_optimizer(config, trained_variables(model, config))
    make_dropout_stateless(model, 1, optimizer.iterations)
    step = tf.function(make_replica_step(model, optimizer, config), jit_compile=True)
    device = tf.distribute.OneDeviceStrategy("/cpu:0")
    (batch,) = next(iter(training_batches(reader, config, device)))
    metrics = step(batch)
    assert all(value.shape == () for value in metrics)
    assert float(metrics.loss_sum) / float(metrics.masked_tokens) == pytest.approx(5.77, abs=0.2)
    assert int(optimizer.iterations) == 1
