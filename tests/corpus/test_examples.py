"""Serialized examples and TFRecord files, read back by TensorFlow."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from corpus.mlm_records import Feature, MaskedRows, feature_arrays, record_features
from corpus.rows.examples import packed_varints, serialize_examples, varint
from corpus.rows.record_files import RecordWriter

# The places where varints grow.
BORDERS = [0, 1, 127, 128, 16383, 16384, 2097151, 2097152]
WIDE = [*BORDERS, 2**28 - 1, 2**28, 2**31 - 1, 2**63 - 1, -1, -(2**63)]
KINDS = [(masked, pairs) for masked in (True, False) for pairs in (True, False)]

Arrays = dict[str, npt.NDArray[Any]]


def random_arrays(
    rows: int, max_seq_length: int, max_predictions: int, *, masked: bool, pairs: bool
) -> Arrays:
    """Return features as the data job makes them, with ids of every size."""
    generator = np.random.default_rng(7)

    def ids(width: int) -> npt.NDArray[np.int32]:
        return generator.choice(np.array(BORDERS, np.int32), (rows, width))

    lengths = generator.integers(5, max_seq_length + 1, rows).astype(np.int32)
    tokens = ids(max_seq_length)
    positions = generator.integers(0, max_seq_length, (rows, max_predictions)).astype(np.int32)
    weights = generator.integers(0, 2, (rows, max_predictions)).astype(np.float32)
    return feature_arrays(
        MaskedRows(tokens, positions, ids(max_predictions), weights) if masked else tokens,
        lengths,
        generator.integers(0, 2**64, rows, dtype=np.uint64),
        row_numbers=None if masked else generator.integers(0, 2**40, rows, dtype=np.uint64),
        first_lengths=lengths // 2 if pairs else None,
        next_sentence_labels=generator.integers(0, 2, rows, dtype=np.uint8) if pairs else None,
    )


def features(*, masked: bool, pairs: bool) -> tuple[Feature, ...]:
    return record_features(masked=masked, next_sentence=pairs)


@pytest.mark.parametrize(("masked", "pairs"), KINDS)
@pytest.mark.parametrize(
    ("length", "predictions"), [(16, 1), (128, 20), (129, 20), (512, 77), (1024, 154)]
)
def test_tensorflow_reads_every_value(
    length: int, predictions: int, masked: bool, pairs: bool
) -> None:
    arrays = random_arrays(7, length, predictions, masked=masked, pairs=pairs)
    kinds = features(masked=masked, pairs=pairs)
    types = {"int64": tf.int64, "float32": tf.float32}
    spec = {
        feature.name: tf.io.FixedLenFeature(
            [feature.size(max_seq_length=length, max_predictions_per_seq=predictions)],
            types[feature.dtype],
        )
        for feature in kinds
    }
    parsed = tf.io.parse_example(serialize_examples(kinds, arrays), spec)
    assert set(parsed) == set(arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(parsed[name].numpy(), values, err_msg=name)


@pytest.mark.parametrize(("masked", "pairs"), KINDS)
def test_bytes_are_those_of_protobuf(masked: bool, pairs: bool) -> None:
    arrays = random_arrays(3, 128, 20, masked=masked, pairs=pairs)
    kinds = features(masked=masked, pairs=pairs)
    for example in serialize_examples(kinds, arrays):
        message = tf.train.Example.FromString(example)
        assert set(message.features.feature) == {feature.name for feature in kinds}
        assert len(message.SerializeToString()) == len(example)


def test_a_record_does_not_depend_on_those_beside_it() -> None:
    arrays = random_arrays(20, 512, 77, masked=True, pairs=True)
    kinds = features(masked=True, pairs=True)
    together = serialize_examples(kinds, arrays)
    alone = [
        serialize_examples(kinds, {name: values[row : row + 1] for name, values in arrays.items()})
        for row in range(20)
    ]
    assert [example for [example] in alone] == together


def test_no_rows_make_no_examples() -> None:
    arrays = random_arrays(0, 16, 2, masked=True, pairs=False)
    assert serialize_examples(features(masked=True, pairs=False), arrays) == []


def test_a_byte_holds_no_more_than_a_byte_of_a_varint() -> None:
    arrays = random_arrays(2, 16, 2, masked=True, pairs=False)
    arrays["segment_ids"][1, 3] = 128
    with pytest.raises(ValueError, match="segment_ids has a uint8 of 128"):
        serialize_examples(features(masked=True, pairs=False), arrays)


@given(st.lists(st.lists(st.sampled_from(WIDE), min_size=3, max_size=3), max_size=6))
def test_varints(rows: list[list[int]]) -> None:
    values = np.array(rows, np.int64).reshape(-1, 3)
    assert packed_varints(values) == [
        b"".join(varint(value % 2**64) for value in row) for row in rows
    ]


def test_rows_do_not_share_varint_widths() -> None:
    values = np.array([[1, 2], [300, 2**40]], np.int64)
    assert packed_varints(values) == [b"\x01\x02", b"\xac\x02" + varint(2**40)]


def test_record_file_and_index_are_read_by_tensorflow(tmp_path: Path) -> None:
    records = [b"", b"x" * 300, b"third"]
    with RecordWriter(tmp_path / "records") as writer:
        writer.write_records(records[:1])
        writer.write_records([])
        writer.write_records(records[1:])
    data = (tmp_path / "records").read_bytes()
    read = [r.numpy() for r in tf.data.TFRecordDataset(str(tmp_path / "records"))]
    assert read == records
    offsets = np.frombuffer(writer.index(), "<u8")
    assert offsets[-1] == len(data) == writer.bytes
    slices = [data[a + 12 : b - 4] for a, b in itertools.pairwise(offsets)]
    assert slices == records


def test_cleared_record_file_starts_again(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "records") as writer:
        writer.write_records([b"old", b"older"])
        writer.clear()
        writer.write_records([b"new"])
    read = [r.numpy() for r in tf.data.TFRecordDataset(str(tmp_path / "records"))]
    assert read == [b"new"]
    assert np.frombuffer(writer.index(), "<u8").tolist() == [0, writer.bytes]
