"""Serialised examples and TFRecord files, read back by TensorFlow."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from beam_jobs.examples import packed_varints, serialize_examples, varint
from beam_jobs.record_files import RecordWriter
from mlm_records import FEATURES

BORDERS = [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 2**31 - 1, 2**63 - 1, -1, -(2**63)]


def random_arrays(rows: int, max_seq_length: int, max_predictions: int) -> dict:  # type: ignore[type-arg]
    generator = np.random.default_rng(7)
    sizes = {"S": max_seq_length, "P": max_predictions, "1": 1}
    arrays = {}
    for feature in FEATURES:
        shape = (rows, sizes[feature.length])
        if feature.dtype == "float32":
            arrays[feature.name] = generator.random(shape).astype(np.float32)
        else:
            # Numbers of every magnitude, as the places where varints grow are what matters.
            arrays[feature.name] = generator.choice(np.array(BORDERS, np.int64), shape)
    arrays["masked_lm_positions"] %= max_seq_length
    return arrays


def parse(examples: list[bytes], arrays: dict) -> dict:  # type: ignore[type-arg]
    types = {"int64": tf.int64, "float32": tf.float32}
    features = {
        f.name: tf.io.FixedLenFeature([arrays[f.name].shape[1]], types[f.dtype]) for f in FEATURES
    }
    return tf.io.parse_example(examples, features)


@pytest.mark.parametrize(("length", "predictions"), [(16, 1), (128, 20), (512, 76), (4096, 600)])
def test_tensorflow_reads_every_value(length: int, predictions: int) -> None:
    arrays = random_arrays(5, length, predictions)
    parsed = parse(serialize_examples(arrays), arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(parsed[name].numpy(), values, err_msg=name)


def test_bytes_are_those_of_protobuf() -> None:
    arrays = random_arrays(3, 16, 2)
    for example in serialize_examples(arrays):
        message = tf.train.Example.FromString(example)
        assert set(message.features.feature) == {feature.name for feature in FEATURES}
        assert len(message.SerializeToString()) == len(example)


def test_no_rows_make_no_examples() -> None:
    assert serialize_examples(random_arrays(0, 16, 2)) == []


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
    assert len(writer.index()) == 16
