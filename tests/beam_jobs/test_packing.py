from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.packing import Rows, pack_rows

CLS, SEP = 101, 102


def pack(lengths: list[list[int]], max_seq_length: int = 16) -> Rows:
    """Pack documents given by the lengths of their sentences; their tokens are 1000, 1001, ..."""
    flat = [length for document in lengths for length in document]
    ends = np.cumsum(np.array(flat, np.int64))
    borders = np.cumsum([len(document) for document in lengths])[:-1]
    ids = np.arange(1000, 1000 + sum(flat), dtype=np.int32)
    return pack_rows(
        ids,
        np.split(ends, borders),
        max_seq_length=max_seq_length,
        cls_id=CLS,
        sep_id=SEP,
    )


def bodies(rows: Rows) -> list[list[int]]:
    return [
        row[1 : length - 1].tolist() for row, length in zip(rows.tokens, rows.lengths, strict=True)
    ]


def test_sentences_of_one_document_share_a_row() -> None:
    rows = pack([[3, 4, 5]])
    assert rows.tokens.tolist() == [[CLS, *range(1000, 1012), SEP, 0, 0]]
    assert rows.lengths.tolist() == [14]


def test_documents_do_not_share_rows() -> None:
    rows = pack([[3], [], [4, 1]])
    assert rows.documents.tolist() == [0, 2]
    assert rows.numbers.tolist() == [0, 0]
    assert bodies(rows) == [[1000, 1001, 1002], [1003, 1004, 1005, 1006, 1007]]


def test_a_row_ends_with_a_sentence_where_that_costs_little() -> None:
    assert [len(body) for body in bodies(pack([[7, 6, 9]]))] == [13, 9]


def test_a_sentence_continues_in_the_next_row_where_padding_would_cost_much() -> None:
    assert [len(body) for body in bodies(pack([[7, 12]]))] == [14, 5]
    assert [len(body) for body in bodies(pack([[30]]))] == [14, 14, 2]


def test_no_documents_make_no_rows() -> None:
    assert pack([[]]).tokens.shape == (0, 16)
    assert pack([[], []]).lengths.tolist() == []


@given(st.lists(st.lists(st.integers(0, 60), max_size=12), min_size=1, max_size=8))
def test_every_token_is_in_one_row_in_order(lengths: list[list[int]]) -> None:
    rows = pack(lengths)
    flat = [token for body in bodies(rows) for token in body]
    assert flat == list(range(1000, 1000 + sum(map(sum, lengths))))
    for row, length in zip(rows.tokens, rows.lengths, strict=True):
        assert (row[0], row[length - 1]) == (CLS, SEP)
        assert not row[length:].any()
    sizes = np.bincount(rows.documents, rows.lengths - 2, minlength=len(lengths))
    assert sizes.tolist() == [sum(document) for document in lengths]
    for document in range(len(lengths)):
        mine = rows.numbers[rows.documents == document]
        assert mine.tolist() == list(range(len(mine)))
