"""The batches that training and evaluation read."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.mlm_records import mask_rows, row_keys, token_table
from pipeline_config import PipelineConfig
from tests.training.conftest import replicas
from tests.training.corpora import (
    TOKENS,
    TinyStore,
    masking_recipe,
    tiny_config,
    training_batches,
)
from trained_models import record_sources
from trained_models.errors import BadDataError
from trained_models.phases import phases
from training.input import data, examples
from training.input.data import TrainingBatches, TrainingData, training_dataset
from training.input.records import RecordReader

ONE_DEVICE = replicas(1)
# Nine steps of 8 short rows, then three of 4 long ones; a quarter is replayed.
MIXED = tiny_config(
    masking__dynamic=True,
    masking__extra_max_seq_length=32,
    masking__extra_max_predictions_per_seq=6,
    training__extra_steps_fraction=0.25,
    training__extra_global_batch_size=4,
    training__replay_fraction=0.29,
)
Batch = dict[str, np.ndarray]


@pytest.fixture
def reader(tiny: TinyStore) -> RecordReader:
    uri = tiny.partition("2026-01-01", documents=9)
    return RecordReader(record_sources.training_sources([uri], tiny.layout, tiny.config))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Return 12 new records and 8 to replay, of either length."""
    store = TinyStore.create(tmp_path_factory.mktemp("mixed")).using(MIXED)
    new = store.partition("2026-01-02", documents=3)
    return store.training_data(new, replay=[store.partition("2026-01-01", documents=2)])


def as_numpy(batch: dict[str, tf.Tensor]) -> Batch:
    return {name: value.numpy() for name, value in batch.items()}


def all_batches(reader: RecordReader, config: PipelineConfig, first_step: int) -> list[Batch]:
    dataset = training_batches(reader, config, ONE_DEVICE, first_step=first_step)
    return [as_numpy(batch) for (batch,) in dataset]


def assert_equal(found: Batch, expected: Batch) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_batches_from_a_step_are_those_of_an_uninterrupted_run(reader: RecordReader) -> None:
    config = tiny_config()
    everything = all_batches(reader, config, 0)
    assert len(everything) == config.training.train_steps
    for resumed, expected in zip(all_batches(reader, config, 5), everything[5:], strict=True):
        assert_equal(resumed, expected)


def test_batch_has_the_model_inputs_in_types_for_a_tpu(reader: RecordReader) -> None:
    batch = all_batches(reader, tiny_config(), 11)[0]
    assert {name: (value.shape, value.dtype.name) for name, value in batch.items()} == {
        "input_word_ids": ((8, 16), "int32"),
        "input_mask": ((8, 16), "int32"),
        "input_type_ids": ((8, 16), "int32"),
        "masked_lm_positions": ((8, 4), "int32"),
        "masked_lm_ids": ((8, 4), "int32"),
        "masked_lm_weights": ((8, 4), "float32"),
    }


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.thorough)])
def test_replicas_together_get_the_same_rows_in_the_same_order(
    reader: RecordReader, count: int
) -> None:
    config = tiny_config()
    distributed = training_batches(reader, config, replicas(count))
    for (shares,), expected in zip(distributed, all_batches(reader, config, 0), strict=True):
        rows = np.concatenate([share.numpy() for share in shares["input_word_ids"].values])
        np.testing.assert_array_equal(rows, expected["input_word_ids"])


def expected_batch(mixed: TrainingData, step: int, skipped: int) -> Batch:
    """Return what a step reads, put together without the input pipeline."""
    part = next(part for part in mixed.parts if step < part.order.phase.end_step)
    numbers, epochs = part.order.rows(tf.constant(step + skipped, tf.int64))
    rows = as_numpy(examples.parse(part.reader.read(numbers.numpy()), part.reader.row_format))
    documents, places = (rows[name][:, 0] for name in ("document_id", "row_number"))
    keys = row_keys(
        documents.view(np.uint64), places.view(np.uint64), epochs.numpy().view(np.uint64)
    )
    masked = mask_rows(
        rows["input_ids"],
        rows["input_mask"].sum(axis=1),
        keys,
        token_table(TOKENS, "wordpiece"),
        masking_recipe(MIXED, part.reader.row_format),
    )
    return {
        "input_word_ids": masked.input_ids,
        "input_mask": rows["input_mask"],
        "input_type_ids": rows["segment_ids"],
        "masked_lm_positions": masked.positions,
        "masked_lm_ids": masked.ids,
        "masked_lm_weights": masked.weights,
    }


def test_each_phase_reads_and_masks_rows_of_its_own_length(mixed: TrainingData) -> None:
    shapes = []
    for phase in phases(MIXED):
        dataset = training_dataset(mixed, phase, phase.first_step, 0, ONE_DEVICE)
        for step, (batch,) in enumerate(dataset, start=phase.first_step):
            assert_equal(as_numpy(batch), expected_batch(mixed, step, 0))
            shapes.append((*batch["input_word_ids"].shape, batch["masked_lm_ids"].shape[1]))
    assert shapes == 9 * [(8, 16, 4)] + 3 * [(4, 32, 6)]


def test_records_to_replay_come_behind_the_new_ones(tiny: TinyStore) -> None:
    store = tiny.using(MIXED)
    old, new = store.partition("2026-01-01", documents=2), store.partition("2026-01-02")
    together, alone = store.training_data(new, replay=[old]), store.training_data(new)
    replayed = store.training_data(old)
    for both, first, last in zip(together.parts, alone.parts, replayed.parts, strict=True):
        assert (both.order.new_records, both.order.replay_records) == (48, 8)
        records = both.reader.read(np.arange(56))
        assert records == first.reader.read(np.arange(48)) + last.reader.read(np.arange(8))


WALKS = st.lists(
    st.tuples(
        st.none() | st.tuples(st.integers(0, 11), st.integers(0, 3)),  # jump to a step, if at all
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=12, deadline=None)
@given(walk=WALKS)
def test_loops_get_their_steps_whatever_came_before(
    mixed: TrainingData, walk: list[tuple[tuple[int, int] | None, int]]
) -> None:
    batches, expected = TrainingBatches(mixed, ONE_DEVICE), functools.partial(expected_batch, mixed)
    step = skipped = 0
    for jump, wanted in walk:
        step, skipped = jump or (step, skipped)
        if step == 12:
            break
        steps = min(wanted, (9 if step < 9 else 12) - step)
        iterator = batches.take(step, steps, skipped)
        for number in range(step, step + steps):
            (batch,) = next(iterator)
            assert_equal(as_numpy(batch), expected(number, skipped))
        step += steps


def test_steps_that_are_skipped_are_passed_over(mixed: TrainingData) -> None:
    main, extra = phases(MIXED)
    straight = list(training_dataset(mixed, main, 0, 0, ONE_DEVICE))
    for (found,), (expected,) in zip(
        training_dataset(mixed, main, 4, 3, ONE_DEVICE), straight[7:], strict=False
    ):
        assert_equal(as_numpy(found), as_numpy(expected))
    # The last steps of a phase read on in rows of its own length.
    assert len(list(training_dataset(mixed, main, 4, 3, ONE_DEVICE))) == 5
    (found,) = next(iter(training_dataset(mixed, extra, 9, 3, ONE_DEVICE)))
    assert_equal(as_numpy(found), expected_batch(mixed, 9, 3))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 36])
def test_evaluation_pads_the_last_batch_with_weight_zero(reader: RecordReader, rows: int) -> None:
    wanted = np.arange(len(reader))[::-1][:rows]
    batches = list(data.evaluation_dataset(reader, wanted, 16, ONE_DEVICE))
    weights = np.concatenate([weights.numpy() for _, weights in batches])
    ids = np.concatenate([batch["input_word_ids"].numpy() for batch, _ in batches])
    expected = examples.parse(tf.constant(reader.read(wanted)), reader.row_format)["input_ids"]

    assert len(ids) == len(weights) == -(-rows // 16) * 16
    assert weights.sum() == rows
    np.testing.assert_array_equal(ids[weights > 0], expected)


def test_feature_of_another_length_is_refused_with_both_numbers(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    reader = RecordReader(record_sources.training_sources([uri], tiny.layout, tiny.config))
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
