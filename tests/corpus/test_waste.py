"""Rows that are mostly padding, and a document that is most of the text, are spoken of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corpus.rows import waste
from corpus.rows.shard_statistics import ShardStatistics
from pipeline_store.formats import DataStatistics, PartitionManifest, Split
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.manifests import partition_manifest, shard


def manifest(fill: float = 0.9, **changes: Any) -> PartitionManifest:
    tokens = round(fill * 100 * 128)
    rows: dict[str, Any] = {
        "records": {Split.TRAIN: 90, Split.VALIDATION: 10},
        "tokens": {Split.TRAIN: tokens - 100, Split.VALIDATION: 100},
        "settings": {"corpus": {"input_format": "auto"}},
    }
    return partition_manifest(StoreLayout("/store"), [shard(1)], **rows | changes)


def test_low_row_fill_says_what_it_costs_and_what_helps() -> None:
    assert waste.warnings(manifest(0.8)) == []
    (line,) = waste.warnings(manifest(0.42))
    assert line.startswith("row fill 0.42: of rows of 128 tokens 58% is padding, ")
    assert "the same text takes 2.4 times that of full rows" in line
    assert "Its 100 documents have 100 tokens on average" in line
    for setting in (
        "corpus.document=file where each text file is one text",
        "masking.packing=full_sentences",
        "a smaller masking.max_seq_length",
    ):
        assert setting in line


@pytest.mark.parametrize(
    ("changes", "unsaid"),
    [
        ({"settings": {"corpus": {"input_format": "jsonl"}}}, "corpus.document"),
        ({"settings": {"corpus": {"document": "file"}}}, "corpus.document"),
        ({"packing": "full_sentences"}, "full_sentences"),
    ],
)
def test_what_is_set_or_cannot_be_is_not_advised(changes: dict[str, Any], unsaid: str) -> None:
    (line,) = waste.warnings(manifest(0.5, **changes))
    assert unsaid not in line
    assert "max_seq_length" in line


def test_rows_of_the_other_length_are_looked_at_too() -> None:
    extra: dict[str, Any] = {
        "extra_max_seq_length": 512,
        "extra_records": {Split.TRAIN: 10, Split.VALIDATION: 0},
        "extra_tokens": {Split.TRAIN: 2560, Split.VALIDATION: 0},
    }
    (line,) = waste.warnings(manifest(**extra))
    assert line.startswith("row fill 0.50: of rows of 512 tokens")
    assert "a smaller masking.extra_max_seq_length" in line


def large(tokens: int) -> DataStatistics:
    return shard(1).statistics.model_copy(update={"longest_document": tokens})


def test_a_document_that_is_a_fifth_of_the_text_is_named() -> None:
    assert waste.warnings(manifest()) == []
    assert waste.warnings(manifest(statistics=large(2000))) == []
    (line,) = waste.warnings(manifest(statistics=large(3400)))
    assert line.startswith("one document holds 34% of the tokens (3,400 of 10,000), ")
    assert "corpus.document=blank_line" in line


def test_the_longest_document_is_counted() -> None:
    statistics = ShardStatistics.of([])
    assert b"longest_document" not in statistics.data.model_dump_json().encode()
    for sizes in ([3, 70, 2], [], [9]):
        statistics.count_documents(np.array(sizes, np.int64))
    assert statistics.data.longest_document == 70
