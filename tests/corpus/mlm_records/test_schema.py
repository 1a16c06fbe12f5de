"""The features of a record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.mlm_records import MaskedRows, document_key, feature_arrays, record_features

S, P = 16, 4
MASKED = MaskedRows(
    input_ids=np.full((2, S), 7, np.int32),
    positions=np.array([[1, 3, 0, 0], [2, 0, 0, 0]], np.int32),
    ids=np.array([[9, 8, 0, 0], [6, 0, 0, 0]], np.int32),
    weights=np.array([[1, 1, 0, 0], [1, 0, 0, 0]], np.float32),
)
LENGTHS = np.array([16, 5], np.int32)
DOCUMENTS = np.array([document_key(b"\xff" * 32), document_key(b"\x01" + b"\x00" * 31)])
FIRST_LENGTHS = np.array([10, 3], np.int32)
LABELS = np.array([1, 0], np.uint8)


def features(*, masked: bool, next_sentence: bool) -> dict[str, Any]:
    return feature_arrays(
        MASKED if masked else MASKED.input_ids,
        LENGTHS,
        DOCUMENTS,
        row_numbers=None if masked else np.array([0, 7], np.uint64),
        first_lengths=FIRST_LENGTHS if next_sentence else None,
        next_sentence_labels=LABELS if next_sentence else None,
    )


def test_names_are_those_of_bert() -> None:
    assert [feature.name for feature in record_features(masked=True, next_sentence=True)] == [
        "input_ids",
        "input_mask",
        "segment_ids",
        "masked_lm_positions",
        "masked_lm_ids",
        "masked_lm_weights",
        "next_sentence_labels",
        "document_id",
    ]


def test_unmasked_records_say_which_row_they_are() -> None:
    assert [feature.name for feature in record_features(masked=False, next_sentence=False)] == [
        "input_ids",
        "input_mask",
        "segment_ids",
        "document_id",
        "row_number",
    ]
    assert features(masked=False, next_sentence=False)["row_number"].tolist() == [[0], [7]]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("next_sentence", [True, False])
def test_every_feature_has_its_size_and_type(masked: bool, next_sentence: bool) -> None:
    values = features(masked=masked, next_sentence=next_sentence)
    expected = record_features(masked=masked, next_sentence=next_sentence)
    assert list(values) == [feature.name for feature in expected]
    for feature in expected:
        array = values[feature.name]
        size = feature.size(max_seq_length=S, max_predictions_per_seq=P)
        assert array.shape == (2, size), feature.name
        assert array.dtype.kind == ("f" if feature.dtype == "float32" else array.dtype.kind)
        assert array.dtype.kind in "fiu", feature.name


def test_positions_are_bytes_only_where_all_fit() -> None:
    def positions(width: int) -> np.dtype:
        masked = MASKED._replace(input_ids=np.zeros((2, width), np.int32))
        return feature_arrays(masked, LENGTHS, DOCUMENTS)["masked_lm_positions"].dtype

    assert positions(128) == np.uint8
    assert positions(129) == np.int32


def test_the_input_mask_marks_real_tokens() -> None:
    mask = features(masked=True, next_sentence=False)["input_mask"]
    np.testing.assert_array_equal(mask.sum(axis=1), [16, 5])
    np.testing.assert_array_equal(mask[1], [1] * 5 + [0] * 11)


def test_one_segment() -> None:
    assert not features(masked=True, next_sentence=False)["segment_ids"].any()


def test_two_segments() -> None:
    values = features(masked=True, next_sentence=True)
    np.testing.assert_array_equal(values["segment_ids"][0], [0] * 10 + [1] * 6)
    np.testing.assert_array_equal(values["segment_ids"][1], [0] * 3 + [1] * 2 + [0] * 11)
    np.testing.assert_array_equal(values["next_sentence_labels"], [[1], [0]])


def test_a_document_id_keeps_all_bits_of_its_key() -> None:
    ids = features(masked=True, next_sentence=False)["document_id"][:, 0]
    assert ids.tolist() == [-1, 1]
    assert ids.view(np.uint64).tolist() == [2**64 - 1, 1]


def test_only_numpy_is_needed() -> None:
    code = """
import sys
import corpus.mlm_records
heavy = ("tensorflow", "apache_beam", "pydantic", "pipeline_store")
sys.exit(any(name in sys.modules for name in heavy))
"""
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
