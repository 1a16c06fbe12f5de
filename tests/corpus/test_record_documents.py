"""Rows of tokens that another program has made: read, put back, and prepared like text."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.errors import UserError
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.inputs import format_of_name, misread_files
from corpus.text.record_documents import RowTokens, record_documents
from corpus.tokens.foreign_tokens import ForeignTokens
from corpus.tokens.vocabulary import Vocabulary
from pipeline_store.formats import Split
from tests.beam_jobs.workspace import Workspace, as_text, documents, make_config
from tests.corpus.converted import SPECIAL, VOCABULARY, Converted, convert
from tests.corpus.input_bytes import as_records

PAD, UNK, CLS, SEP, MASK = SPECIAL
TEXT = as_text(documents(12))


def written(rows: list[dict[str, list[Any]]], path: Path) -> bytes:
    """Return what TensorFlow writes for such features."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            features = {}
            for name, values in row.items():
                if isinstance(values[0], float):
                    feature = tf.train.Feature(float_list=tf.train.FloatList(value=values))
                else:
                    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                features[name] = feature
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path.read_bytes()


EXAMPLE = tf.train.Example(
    features=tf.train.Features(
        feature={
            "input_ids": tf.train.Feature(
                int64_list=tf.train.Int64List(value=[CLS, MASK, 300, SEP, 9, SEP, 0])
            ),
            "masked_lm_positions": tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
            "masked_lm_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[7])),
            "masked_lm_weights": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0])),
            "next_sentence_labels": tf.train.Feature(int64_list=tf.train.Int64List(value=[0])),
        }
    )
).SerializeToString()


def found(data: bytes) -> list[RowTokens]:
    rows = list(record_documents(io.BytesIO(data)))
    assert not any(isinstance(row, Rejected) for row in rows)
    return [row for row in rows if isinstance(row, RowTokens)]


def rejected(data: bytes) -> Rejected:
    (row,) = record_documents(io.BytesIO(data))
    assert isinstance(row, Rejected)
    return row


def row(**more: list[Any]) -> dict[str, list[Any]]:
    """Return a row of two segments as tf-models names it: 300 and 7 are masked, 9 is kept."""
    return {
        "input_word_ids": [CLS, MASK, 8, SEP, 9, 5, SEP, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 1, 0, 0],
        "input_type_ids": [0, 0, 0, 0, 1, 1, 1, 0, 0],
        "masked_lm_positions": [1, 4, 5, 0],
        "masked_lm_ids": [300, 9, 7, 0],
        "masked_lm_weights": [1.0, 1.0, 1.0, 0.0],
        "next_sentence_labels": [0],
    } | more


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_masked_is_put_back(tmp_path: Path, packed: bool) -> None:
    data = written([row(), row(next_sentence_labels=[1])], tmp_path / "a")
    follows, first, second = found(gzip.compress(data) if packed else data)
    assert [piece.tolist() for piece in follows.pieces] == [[300, 8], [9, 7]]
    assert follows.frame == (CLS, SEP)
    assert follows.shown.tolist() == [MASK, 9, 5]
    # A random second segment is another document.
    assert [[piece.tolist() for piece in one.pieces] for one in (first, second)] == [
        [[300, 8]],
        [[9, 7]],
    ]
    assert follows.texts == ["300 8", "9 7"]
    assert len({one.sha256 for one in (follows, first, second)}) == 3


def test_rows_without_masks_or_segments(tmp_path: Path) -> None:
    bare = {"input_ids": [CLS, 7, 8, SEP, 9, SEP, 0, 0]}
    (one,) = found(written([bare], tmp_path / "a"))
    assert [piece.tolist() for piece in one.pieces] == [[7, 8], [9]]
    assert len(one.shown) == 0


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"input_word_ids": [CLS, SEP, 0, 0, 0, 0, 0, 0, 0]}, "real tokens are not"),
        ({"input_mask": [0, 1, 1, 1, 1, 1, 1, 0, 0]}, "not the first ones"),
        ({"input_type_ids": [0, 0]}, "as many segment ids"),
        ({"masked_lm_positions": [1, 4, 9, 0]}, "outside of the row"),
        ({"masked_lm_positions": [1]}, "as many masked positions"),
        ({"masked_lm_ids": [1.0, 1.0, 1.0, 1.0]}, "no int64"),
        ({"input_type_ids": [0.5] * 9}, "no int64"),
        ({"masked_lm_ids": [300, -9, 7, 0]}, "below 0"),
        ({"masked_lm_ids": [300, 1 << 40, 7, 0]}, "above"),
        ({"input_word_ids": [CLS, SEP, SEP, SEP, SEP, SEP, SEP, 0, 0]}, "but special ones"),
    ],
)
def test_a_record_that_is_no_row_is_rejected(
    tmp_path: Path, changes: dict[str, list[Any]], detail: str
) -> None:
    if "special" in detail or "real tokens" in detail:
        changes |= {"masked_lm_weights": [0.0] * 4}
    if "real tokens" in detail:
        changes |= {"input_mask": [1] + [0] * 8}
        detail = "real tokens are fewer than two"
    one = rejected(written([row(**changes)], tmp_path / "a"))
    assert (one.reason, one.offset) == (DropReason.INVALID_RECORD, 0)
    assert detail in one.detail


def test_a_record_that_is_no_example_is_rejected(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as writer:
        writer.write(b"\x0a\xff")
    assert rejected((tmp_path / "a").read_bytes()).detail == "no tf.train.Example"
    del_ids = {name: values for name, values in row().items() if name != "input_word_ids"}
    assert "no feature input_ids" in rejected(written([del_ids], tmp_path / "b")).detail


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    size=st.integers(0, 400),
)
def test_any_record_is_a_row_or_rejected(changes: list[tuple[int, int]], size: int) -> None:
    content = bytearray(EXAMPLE[:size])
    for place, octet in changes:
        content[place % (len(content) or 1) : place % (len(content) or 1) + 1] = bytes([octet])
    for one in record_documents(io.BytesIO(as_records([bytes(content)]))):
        if isinstance(one, Rejected):
            assert one.reason is DropReason.INVALID_RECORD
        else:
            assert all(len(piece) and piece.min() >= 0 for piece in one.pieces)
            assert len(one.sha256) == 32


def test_a_damaged_file_is_given_up(tmp_path: Path) -> None:
    data = written([row()] * 3, tmp_path / "a")
    size = len(data) // 3
    broken = bytearray(data)
    broken[size + 20] ^= 1
    for bad, reason in (
        (data[:-1], DropReason.CORRUPT_TFRECORD),
        (bytes(broken), DropReason.CORRUPT_TFRECORD),
        (b"some text, and no records at all", DropReason.WRONG_FORMAT),
    ):
        with pytest.raises(RejectedFileError) as error:
            list(record_documents(io.BytesIO(bad)))
        assert error.value.reason is reason
    assert list(record_documents(io.BytesIO(b""))) == []


def records_of(made: Converted, split: Split = Split.TRAIN) -> bytes:
    return made.files[made.rows(split)]


def own_tokens(rows: list[list[int]]) -> list[tuple[int, ...]]:
    return [tuple(token for token in one if token not in (CLS, SEP)) for one in rows]


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_become_rows_of_the_same_tokens(dynamic: bool) -> None:
    before = convert(TEXT, "text", masking__dupe_factor=3)
    after = convert(records_of(before), "tfrecord", masking__dynamic=dynamic)
    expected = own_tokens(before.original())
    # Those that this converter holds out by their content are on the other side.
    rows = own_tokens(after.original()) + own_tokens(after.original(Split.VALIDATION))
    assert sorted(rows) == sorted(expected)
    assert after.statistics.documents == len(expected)
    assert after.statistics.dropped == {}


def test_pairs_become_pairs_again() -> None:
    before = convert(TEXT, "text", masking__packing="segment_pair")
    after = convert(records_of(before), "tfrecord", masking__packing="segment_pair")
    labels = before.parsed()["next_sentence_labels"]
    assert after.statistics.documents == len(labels) + int(labels.sum())
    tokens = sum(map(len, own_tokens(before.original())))
    assert after.statistics.text_tokens == tokens


def test_rows_of_another_vocabulary_are_refused() -> None:
    rows = found(records_of(convert(TEXT, "text")))
    assert ForeignTokens(VOCABULARY).why_not(rows) is None
    tokens = VOCABULARY.tokens
    cut = Vocabulary(tokens[:-20])
    assert f"but the vocabulary has {len(cut.tokens)}" in (ForeignTokens(cut).why_not(rows) or "")
    for one, other, words in (
        (CLS, UNK, "begin with"),
        (SEP, UNK, "end with"),
        (MASK, UNK, "mask"),
    ):
        changed = list(tokens)
        changed[one], changed[other] = changed[other], changed[one]
        assert words in (ForeignTokens(Vocabulary(tuple(changed))).why_not(rows) or "")
    # As one of another casing: the ids of special tokens are the same, the others mean other words.
    shifted = (*tokens[:5], *(f"[unused{number}]" for number in range(9)), *tokens[5:-9])
    assert "another casing" in (ForeignTokens(Vocabulary(shifted)).why_not(rows) or "")


def test_the_job_refuses_rows_of_another_vocabulary(tmp_path: Path) -> None:
    data = written([row()], tmp_path / "a")
    with pytest.raises(UserError, match="with another vocabulary: they have a token 300, but"):
        convert(data, "tfrecord")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.tfrecord", "tfrecord"),
        ("tf_examples.tf_record", "tfrecord"),
        ("a.tfrecords.gz", "tfrecord"),
        ("train.tfrecord-00003-of-00010", "tfrecord"),
        ("train.tfrecord-00003-of-00010.gz", "tfrecord"),
        ("train-00003-of-00010.txt", "text"),
        ("tfrecord.txt", "text"),
    ],
)
def test_the_format_follows_from_the_name(name: str, expected: str) -> None:
    assert format_of_name(name) == expected


def test_settings_of_text_are_refused() -> None:
    lines = list(misread_files(["a.tfrecord"], make_config()))
    assert [line.partition(":")[0] for line in lines] == ["vocabulary.uri"]
    config = make_config(
        vocabulary__uri="v.txt",
        vocabulary__domain_words=3,
        corpus__group_field="thread",
        corpus__keep_languages=["en"],
        corpus__min_document_characters=9,
    )
    lines = list(misread_files(["a.tfrecord"], config))
    assert [line.partition(":")[0] for line in lines] == [
        "vocabulary.domain_words",
        "corpus.group_field",
        "corpus.keep_languages",
        "corpus.min_document_characters",
    ]


def test_a_partition_of_foreign_records(workspace: Workspace, tmp_path: Path) -> None:
    source = convert(TEXT, "text", masking__dupe_factor=2)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_bytes(VOCABULARY.to_bytes())
    for number in range(2):
        workspace.put(f"x.tfrecord-{number:05}-of-00002", records_of(source))
    workspace.config = make_config(
        vocabulary__uri=str(vocabulary),
        model__vocab_size=1000,
        corpus__validation_fraction=0.4,
        masking__dupe_factor=1,
    )
    prepared = workspace.prepare()
    manifest = prepared.manifest
    rows = set(own_tokens(source.original()))
    # Of a row's copies with other masks, and of equal files, one is used.
    assert sum(manifest.records.values()) == len(rows)
    assert manifest.dropped == {"duplicate": len(own_tokens(source.original())) - len(rows)}
    assert all(manifest.records.values())
    letters = [workspace.dead_letters(one) for one in workspace.shards(manifest) if one.dead_letter]
    assert letters == []
    assert json.loads(manifest.to_bytes())["documents"] == len(own_tokens(source.original()))
    assert np.isclose(manifest.statistics.text_tokens, sum(map(len, rows)))
