"""The order of records and the batches made of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from tests.training.conftest import replicas
from tests.training.corpora import TinyStore, tiny_config
from training import corpus, data, examples
from training.errors import BadDataError
from training.records import RecordReader

ONE_DEVICE = replicas(1)


def numbers(step: int, *, batch: int, records: int, seed: int = 1) -> np.ndarray:
    positions = data.positions(
        tf.constant(step, tf.int64), seed=seed, global_batch_size=batch, num_records=records
    )
    return positions.numbers.numpy()


@pytest.fixture
def reader(tiny: TinyStore) -> RecordReader:
    uri = tiny.partition("2026-01-01", documents=9)
    return RecordReader(corpus.training_sources([uri], tiny.layout, tiny.config))


@pytest.mark.parametrize(("batch", "records"), [(7, 50), (8, 8), (16, 5), (3, 1), (1, 4)])
def test_every_epoch_is_a_permutation(batch: int, records: int) -> None:
    epochs = 4
    steps = -(-epochs * records // batch)
    order = np.concatenate([numbers(s, batch=batch, records=records) for s in range(steps)])
    by_epoch = order[: epochs * records].reshape(epochs, records)
    assert (np.sort(by_epoch, axis=1) == np.arange(records)).all()
    if records >= 50:
        assert len({tuple(epoch) for epoch in by_epoch}) == epochs


def test_order_depends_on_the_seed_alone() -> None:
    first = numbers(3, batch=8, records=100)
    assert (numbers(3, batch=8, records=100) == first).all()
    assert (numbers(3, batch=8, records=100, seed=2) != first).any()


def training_batches(
    reader: RecordReader, config: PipelineConfig, first_step: int
) -> list[dict[str, np.ndarray]]:
    dataset = data.training_dataset(reader, config, first_step, ONE_DEVICE)
    return [tf.nest.map_structure(lambda value: value.numpy(), batch) for (batch,) in dataset]


def test_batches_from_a_step_are_those_of_an_uninterrupted_run(reader: RecordReader) -> None:
    config = tiny_config()
    everything = training_batches(reader, config, 0)
    assert len(everything) == config.training.train_steps
    for resumed, expected in zip(training_batches(reader, config, 5), everything[5:], strict=True):
        assert resumed.keys() == expected.keys()
        for name in resumed:
            np.testing.assert_array_equal(resumed[name], expected[name])


def test_batch_has_the_model_inputs_in_types_for_a_tpu(reader: RecordReader) -> None:
    batch = training_batches(reader, tiny_config(), 11)[0]
    assert {name: (value.shape, value.dtype.name) for name, value in batch.items()} == {
        "input_word_ids": ((8, 16), "int32"),
        "input_mask": ((8, 16), "int32"),
        "input_type_ids": ((8, 16), "int32"),
        "masked_lm_positions": ((8, 4), "int32"),
        "masked_lm_ids": ((8, 4), "int32"),
        "masked_lm_weights": ((8, 4), "float32"),
    }


@pytest.mark.parametrize("count", [2, 8])
def test_replicas_together_get_the_same_rows_in_the_same_order(
    reader: RecordReader, count: int
) -> None:
    config = tiny_config()
    distributed = data.training_dataset(reader, config, 0, replicas(count))
    for (shares,), expected in zip(distributed, training_batches(reader, config, 0), strict=True):
        rows = np.concatenate([share.numpy() for share in shares["input_word_ids"].values])
        np.testing.assert_array_equal(rows, expected["input_word_ids"])


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 36])
def test_evaluation_pads_the_last_batch_with_weight_zero(reader: RecordReader, rows: int) -> None:
    wanted = np.arange(len(reader))[::-1][:rows]
    batches = list(data.evaluation_dataset(reader, wanted, tiny_config(), ONE_DEVICE))
    weights = np.concatenate([weights.numpy() for _, weights in batches])
    ids = np.concatenate([batch["input_word_ids"].numpy() for batch, _ in batches])
    expected = examples.parse(tf.constant(reader.read(wanted)), reader.row_format)["input_ids"]

    assert len(ids) == len(weights) == -(-rows // 16) * 16
    assert weights.sum() == rows
    np.testing.assert_array_equal(ids[weights > 0], expected)


def test_feature_of_another_length_is_refused_with_both_numbers(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    reader = RecordReader(corpus.training_sources([uri], tiny.layout, tiny.config))
    examples.check_records(reader)
    reader.row_format = dataclasses.replace(reader.row_format, max_seq_length=24)
    with pytest.raises(BadDataError, match=r"'input_ids' has 16 int64 .* manifest it has 24"):
        examples.check_records(reader)


def test_what_is_no_record_is_refused(reader: RecordReader) -> None:
    class Garbage(RecordReader):
        def __init__(self) -> None:
            self.row_format = reader.row_format

        def first_records(self) -> list[tuple[str, bytes]]:
            return [("some/file", b"\xff\xff\xff")]

    with pytest.raises(BadDataError, match=r"some/file: its first record is not a tf.train"):
        examples.check_records(Garbage())
