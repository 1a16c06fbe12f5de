from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.rows.packing import DocumentPacker, Packer, StreamPacker
from tests.corpus.tokenized import CLS, FIRST, SEP, Row, batches_of, documents, pack

WIDTH = 16
ROOM = WIDTH - 2


def by_document(lengths: list[int], sizes: tuple[int, ...] = (1000,)) -> list[Row]:
    whole = documents([[length] for length in lengths])
    return pack(DocumentPacker(WIDTH), batches_of(whole, sizes), WIDTH)


def as_stream(lengths: list[int], sizes: tuple[int, ...] = (1000,)) -> list[Row]:
    whole = documents([[length] for length in lengths])
    return pack(StreamPacker(WIDTH, SEP), batches_of(whole, sizes), WIDTH)


def text(lengths: list[int]) -> list[int]:
    return list(range(FIRST, FIRST + sum(lengths)))


LENGTHS = st.lists(st.integers(1, 70), min_size=1, max_size=12)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def test_rows_of_a_document_are_full_but_the_last() -> None:
    rows = by_document([30])
    assert [len(row.tokens) for row in rows] == [16, 16, 4]
    assert rows[0].tokens == [CLS, *range(1000, 1014), SEP]
    assert [row.number for row in rows] == [0, 1, 2]


def test_documents_do_not_share_rows() -> None:
    rows = by_document([3, 5])
    assert [row.tokens for row in rows] == [
        [CLS, 1000, 1001, 1002, SEP],
        [CLS, *range(1003, 1008), SEP],
    ]
    assert [row.document for row in rows] == [0, 1]


@given(LENGTHS, SIZES)
def test_every_token_of_a_document_is_in_one_row_in_order(
    lengths: list[int], sizes: tuple[int, ...]
) -> None:
    rows = by_document(lengths, sizes)
    assert [token for row in rows for token in row.tokens[1:-1]] == text(lengths)
    for row in rows:
        assert (row.tokens[0], row.tokens[-1]) == (CLS, SEP)
    for document, length in enumerate(lengths):
        mine = [row for row in rows if row.document == document]
        assert [row.number for row in mine] == list(range(len(mine)))
        assert [len(row.tokens) - 2 for row in mine[:-1]] == [ROOM] * (len(mine) - 1)
        assert sum(len(row.tokens) - 2 for row in mine) == length


def test_documents_follow_each_other_with_a_separator() -> None:
    rows = as_stream([3, 5, 20])
    assert rows[0].tokens == [
        CLS,
        1000,
        1001,
        1002,
        SEP,
        *range(1003, 1008),
        SEP,
        *range(1008, 1012),
        SEP,
    ]
    assert rows[1].tokens == [CLS, *range(1012, 1026), SEP]
    assert rows[2].tokens == [CLS, 1026, 1027, SEP]
    assert [(row.document, row.number) for row in rows] == [(0, 0), (2, 0), (2, 1)]


def test_a_row_begins_and_ends_with_text() -> None:
    # Where nothing but the separator fits, it is left out and the row is one token short.
    exact = as_stream([ROOM, 5])
    assert [len(row.tokens) for row in exact] == [WIDTH, 7]
    short = as_stream([ROOM - 1, 5])
    assert [len(row.tokens) for row in short] == [WIDTH - 1, 7]
    assert short[1].tokens == [CLS, *range(1013, 1018), SEP]
    both = as_stream([ROOM - 2, 5])
    assert both[0].tokens == [CLS, *range(1000, 1012), SEP, 1012, SEP]


@given(LENGTHS, SIZES)
def test_every_token_of_the_stream_is_in_one_row_in_order(
    lengths: list[int], sizes: tuple[int, ...]
) -> None:
    rows = as_stream(lengths, sizes)
    found = [token for row in rows for token in row.tokens[1:-1] if token != SEP]
    assert found == text(lengths)
    assert all(SEP not in (row.tokens[1], row.tokens[-2]) for row in rows)
    assert all(len(row.tokens) >= WIDTH - 1 for row in rows[:-1])
    begins = np.cumsum([FIRST, *lengths])
    for row in rows:
        assert row.document == np.searchsorted(begins, row.tokens[1], side="right") - 1
        # A separator stands before every document that begins within the row, and only there.
        inside = [t for t in row.tokens[2:-1] if t in begins]
        before = [a for a, b in zip(row.tokens[1:], row.tokens[2:-1], strict=False) if b in begins]
        assert before == [SEP] * len(inside)
        assert row.tokens[1:-1].count(SEP) == len(inside)
    keys = [(row.document, row.number) for row in rows]
    assert len(set(keys)) == len(keys)
    for document in {row.document for row in rows}:
        numbers = [row.number for row in rows if row.document == document]
        assert numbers == list(range(len(numbers)))


@given(LENGTHS, SIZES)
def test_batches_make_no_difference(lengths: list[int], sizes: tuple[int, ...]) -> None:
    assert as_stream(lengths, sizes) == as_stream(lengths)
    assert by_document(lengths, sizes) == by_document(lengths)


@pytest.mark.parametrize("packer", [DocumentPacker(WIDTH), StreamPacker(WIDTH, SEP)])
def test_no_documents_make_no_rows(packer: Packer) -> None:
    assert pack(packer, [documents([])], WIDTH) == []


def lengths_of_a_corpus(count: int = 3000) -> list[int]:
    """Document lengths as in real text: median 300 tokens, a few as long as books."""
    draws = np.random.default_rng(1).lognormal(np.log(300), 2.0, count)
    return np.clip(draws, 5, 1_000_000).astype(int).tolist()


def fill(rows: list[int], width: int) -> float:
    return sum(rows) / (len(rows) * width)


def row_lengths(packer: Packer, lengths: list[int]) -> list[int]:
    whole = documents([[length] for length in lengths])
    plans = [*(packer.add(batch) for batch in batches_of(whole, (50,))), packer.finish()]
    return [size + 2 for plan in plans for size in plan.sizes.tolist()]


def test_rows_of_single_documents_are_as_full_as_they_can_be() -> None:
    lengths = lengths_of_a_corpus()
    rows = row_lengths(DocumentPacker(128), lengths)
    assert len(rows) == sum(-(-length // 126) for length in lengths)
    assert fill(rows, 128) >= 0.96


@pytest.mark.parametrize("width", [128, 512])
def test_rows_across_documents_are_full(width: int) -> None:
    assert fill(row_lengths(StreamPacker(width, SEP), lengths_of_a_corpus()), width) >= 0.999
