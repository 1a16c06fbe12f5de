"""The features of a record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from mlm_records import FEATURES, MaskedRows, document_key, feature_arrays

S, P = 16, 4


def features() -> dict[str, np.ndarray]:
    masked = MaskedRows(
        input_ids=np.full((2, S), 7, np.int32),
        positions=np.array([[1, 3, 0, 0], [2, 0, 0, 0]], np.int32),
        ids=np.array([[9, 8, 0, 0], [6, 0, 0, 0]], np.int32),
        weights=np.array([[1, 1, 0, 0], [1, 0, 0, 0]], np.float32),
    )
    documents = np.array([document_key(b"\xff" * 32), document_key(b"\x01" + b"\x00" * 31)])
    return dict(feature_arrays(masked, np.array([16, 5], np.int32), documents))


def test_names_are_those_of_bert() -> None:
    assert [feature.name for feature in FEATURES][:6] == [
        "input_ids",
        "input_mask",
        "segment_ids",
        "masked_lm_positions",
        "masked_lm_ids",
        "masked_lm_weights",
    ]


def test_every_feature_has_its_size_and_type() -> None:
    values = features()
    assert list(values) == [feature.name for feature in FEATURES]
    for feature in FEATURES:
        array = values[feature.name]
        size = feature.size(max_seq_length=S, max_predictions_per_seq=P)
        assert array.shape == (2, size), feature.name
        assert array.dtype == np.dtype(feature.dtype), feature.name


def test_the_input_mask_marks_real_tokens() -> None:
    np.testing.assert_array_equal(features()["input_mask"].sum(axis=1), [16, 5])
    np.testing.assert_array_equal(features()["input_mask"][1], [1] * 5 + [0] * 11)


def test_one_segment() -> None:
    assert not features()["segment_ids"].any()


def test_a_document_id_keeps_all_bits_of_its_key() -> None:
    ids = features()["document_id"][:, 0]
    assert ids.tolist() == [-1, 1]
    assert ids.view(np.uint64).tolist() == [2**64 - 1, 1]


def test_only_numpy_is_needed() -> None:
    code = """
import sys
import mlm_records
heavy = ("tensorflow", "apache_beam", "pydantic", "pipeline_store")
sys.exit(any(name in sys.modules for name in heavy))
"""
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
