"""A shard's bytes to its records: what the core promises, whatever the recipe."""

from __future__ import annotations

import gzip
import io
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.rows.conversion import ShardStatistics
from corpus.text.content import split_of
from corpus.text.shard_contents import DocumentCounts, read_contents
from corpus.tokens.vocabulary import CLS, MASK, PAD, SEP
from pipeline_store.formats import ShardDecisions, Split
from tests.beam_jobs.workspace import as_jsonl, as_text, documents, make_config
from tests.corpus.converted import PACKINGS, UNITS, VOCABULARY, Converted, convert

TEXTS = documents(60)
DATA = as_text(TEXTS)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("packing", PACKINGS)
def test_batch_size_changes_no_byte(packing: str, unit: str) -> None:
    data = as_text([*documents(40), "Ren\u00e9 \u4e2d\u6587"]) + b"\n\n\xff bad\n"
    changes: dict[str, Any] = {
        "masking__packing": packing,
        "masking__unit": unit,
        "masking__dupe_factor": 2,
        "masking__extra_max_seq_length": 48,
    }
    # From one document at a time to all of them.
    results = [
        convert(data, batch_characters=size, **changes) for size in (1, 700, 10_000, 1 << 20)
    ]
    assert all(results[0].files.values())
    for result in results:
        assert result.files == results[0].files
        assert result.indexes == results[0].indexes
        assert result.letters == results[0].letters
        assert result.statistics.data == results[0].statistics.data
        assert result.statistics.rows == results[0].statistics.rows
        np.testing.assert_array_equal(
            result.statistics.trained_tokens, results[0].statistics.trained_tokens
        )


@pytest.mark.parametrize(
    "recipe",
    [{"dynamic": True}, {"dupe_factor": 3}, {"packing": "full_sentences", "dynamic": True}],
    ids=str,
)
def test_the_tokens_to_train_on_are_counted_once_each(recipe: dict[str, Any]) -> None:
    converted = convert(DATA, **{f"masking__{name}": value for name, value in recipe.items()})
    in_rows = Counter(token for row in converted.original() for token in row)
    copies = recipe.get("dupe_factor", 1)
    counted = dict(enumerate(converted.statistics.trained_tokens.tolist()))
    for token in (PAD, CLS, SEP, MASK):
        in_rows.pop(VOCABULARY.ids[token], None)
        assert not counted[VOCABULARY.ids[token]]
    assert {token: copies * count for token, count in counted.items() if count} == in_rows
    assert sum(counted.values()) < converted.statistics.text_tokens, "held-out text is not counted"


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_second_row_length_changes_nothing_of_the_first(packing: str) -> None:
    alone = convert(DATA, masking__packing=packing)
    both = convert(
        DATA,
        masking__packing=packing,
        masking__extra_max_seq_length=512,
        masking__extra_max_predictions_per_seq=77,
        model__max_position_embeddings=512,
    )
    assert both.files.items() >= alone.files.items()
    assert len(both.files) == 2 * len(alone.files) == 4
    for rows, counts in alone.statistics.rows.items():
        assert both.statistics.rows[rows] == counts
    assert both.statistics.data == alone.statistics.data


@pytest.mark.parametrize("packing", PACKINGS)
def test_another_seed_gives_other_records(packing: str) -> None:
    one = convert(DATA, masking__packing=packing)
    other = convert(DATA, masking__packing=packing, masking__random_seed=99)
    for split in Split:
        records = one.records(split)
        # Rows of a handful of tokens may be masked alike by chance.
        assert len(set(records) & set(other.records(split))) < 0.05 * len(records)


def sides(texts: list[str]) -> list[Split]:
    contents = read_contents(
        io.BytesIO(as_text(texts)),
        "text",
        make_config().corpus,
        split_sentences=False,
        counts=DocumentCounts(),
        reject=lambda rejected: pytest.fail(str(rejected)),
    )
    fraction = make_config().corpus.validation_fraction
    return [split_of(content.sha256, fraction) for content in contents]


def test_decisions_leave_documents_out() -> None:
    decisions = ShardDecisions(duplicates=[3, 17], near_duplicates=[4])
    converted = convert(DATA, decisions=decisions)
    left = [text for number, text in enumerate(TEXTS) if number not in (3, 4, 17)]
    assert converted.files == convert(as_text(left)).files
    assert converted.statistics.dropped == {"duplicate": 2, "near_duplicate": 1}
    assert converted.statistics.documents == 60


def test_decisions_are_counted_with_what_cannot_be_read() -> None:
    # Documents are numbered as they are read, unreadable ones included.
    texts = [b"one two three", b"\xff\xfe bad", b"four five six", b"seven"]
    data = b"\n\n".join(texts) + b"\n"
    converted = convert(data, decisions=ShardDecisions(duplicates=[2], near_duplicates=[]))
    assert converted.statistics.documents == 4
    assert converted.statistics.dropped == {"invalid_utf8": 1, "duplicate": 1}
    assert converted.statistics.data.text_tokens == len("onetwothreeseven")


def test_decisions_override_sides() -> None:
    before = sides(TEXTS)
    held_out, trained = before.index(Split.VALIDATION), before.index(Split.TRAIN)
    decisions = ShardDecisions(
        duplicates=[], near_duplicates=[], validation=[trained], train=[held_out]
    )
    plain, changed = convert(DATA), convert(DATA, decisions=decisions)

    def keys(converted: Converted, split: Split) -> set[int]:
        return set(converted.parsed(split)["document_id"][:, 0].tolist())

    [to_validation] = keys(plain, Split.TRAIN) - keys(changed, Split.TRAIN)
    [to_train] = keys(plain, Split.VALIDATION) - keys(changed, Split.VALIDATION)
    assert to_validation in keys(changed, Split.VALIDATION)
    assert to_train in keys(changed, Split.TRAIN)


def test_decisions_of_another_file_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1 documents are decided on .* number 60 of 60"):
        convert(DATA, decisions=ShardDecisions(duplicates=[60], near_duplicates=[]))


def test_statistics_are_those_of_the_text() -> None:
    texts = ["ba", "ba ke li", "bakeli mo \u2603 \u2603.", "ke " * 500]
    converted = convert(as_text(texts), masking__packing="full_sentences")
    data = converted.statistics.data
    assert data.text_tokens == 1 + 3 + 7 + 500
    assert data.unknown_tokens == 2
    assert data.document_tokens == {0: 1, 1: 1, 2: 1, 8: 1}
    assert sum(data.row_tokens.values()) == sum(
        counts.records for counts in converted.statistics.rows.values()
    )
    assert data.new_words["bakeli"] == 1
    assert "ke" not in data.new_words


def test_a_damaged_file_leaves_nothing() -> None:

    packed = gzip.compress(DATA)
    converted = convert(packed[:-20], batch_characters=1, masking__packing="full_sentences")
    assert not any(converted.files.values())
    assert set(converted.statistics.dropped) == {"truncated_gzip"}
    assert converted.statistics.documents == converted.statistics.dropped["truncated_gzip"] > 1
    assert set(converted.statistics.rows) == set(converted.files)
    assert converted.statistics.tokens == 0
    assert converted.statistics.data.text_tokens == 0
    assert b"truncated_gzip" in converted.letters


def test_documents_without_tokens_are_dropped() -> None:
    converted = convert(as_text(["\u200b\u00ad", "ba ke", "\u200b"]))
    assert converted.statistics.dropped["empty"] == 2
    assert sum(rows.documents for rows in converted.statistics.rows.values()) == 1


def test_the_report_is_called_with_growing_counts() -> None:
    seen: list[tuple[int, int]] = []

    def report(statistics: ShardStatistics) -> None:
        seen.append((statistics.documents, statistics.tokens))

    convert(DATA, batch_characters=1, report=report)
    assert [documents for documents, _ in seen[:-1]] == list(range(1, 61))
    assert seen == sorted(seen)
    assert seen[-1][0] == 60


BYTES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"\n", b"\n\n", b"ba ke li.", b"\xff", b"\0", b'{"text": "ba ke"}\n']),
        st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=60, deadline=None)
@given(
    data=BYTES,
    input_format=st.sampled_from(["text", "sentences", "jsonl"]),
    packing=st.sampled_from(PACKINGS),
    unit=st.sampled_from(UNITS),
)
def test_every_document_is_accounted_for(
    data: bytes, input_format: str, packing: str, unit: str
) -> None:
    converted = convert(
        data, input_format, masking__packing=packing, masking__unit=unit, batch_characters=10
    )
    statistics = converted.statistics
    written = sum(rows.documents for rows in statistics.rows.values())
    assert statistics.documents == written + sum(statistics.dropped.values())
    for rows, counts in statistics.rows.items():
        assert counts.records == len(converted.records(rows.split))
        assert (counts.records > 0) == (counts.tokens > 0)


def test_every_document_kept_is_in_a_record() -> None:
    random_texts = random.Random(1).sample(TEXTS, 30)
    converted = convert(as_jsonl(random_texts), "jsonl", masking__packing="segment_pair")
    found = {
        key for split in Split for key in converted.parsed(split)["document_id"][:, 0].tolist()
    }
    assert len(found) == 30
