from __future__ import annotations

import csv
import gzip
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.text import reading, tables
from corpus.text.drops import DropReason, Rejected, RejectedFileError


def parse(data: bytes, delimiter: str = ",") -> list[str | Rejected]:
    return list(tables.table_documents(io.BytesIO(data), delimiter, "text"))


def refusal(data: bytes, delimiter: str = ",") -> RejectedFileError:
    with pytest.raises(RejectedFileError) as caught:
        parse(data, delimiter)
    return caught.value


def test_a_document_is_a_record_in_the_column_of_that_name() -> None:
    assert parse(b"id,text,date\n1,one,x\r\n2,two,y") == ["one", "two"]
    assert parse(b"text\nIt is fine.\n") == ["It is fine."]
    assert parse(b"\xef\xbb\xbftext,id\none,1\n") == ["one"]
    assert parse(gzip.compress(b"text\none\n")) == ["one"]


def test_tabs_separate_the_columns_of_tsv() -> None:
    assert parse(b'id\ttext\n1\ta, "b" c\n2\t"with\ttab"\n', "\t") == ['a, "b" c', "with\ttab"]


def test_quoted_fields_have_commas_quotes_and_lines() -> None:
    data = b'id,text\n1,"a, ""b""\r\n\r\nc"\n\n2,d\n3,""\n'
    assert parse(data) == ['a, "b"\n\nc', "d", ""]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"id,text\n", b"id,text"])
def test_table_without_records_has_no_documents(data: bytes) -> None:
    assert parse(data) == []


def test_missing_column_is_named_with_those_that_exist() -> None:
    error = refusal(b"id;text\n1;one\n")
    assert error.reason is DropReason.MISSING_COLUMN
    assert error.detail == (
        "no column 'text' (corpus.text_field); the file has 1 column(s); columns are "
        "separated by ','"
    )
    assert (
        "the file has 2 column(s); columns are separated by '\\t'"
        in refusal(b"id\tbody\n", "\t").detail
    )


def test_column_that_is_there_twice_is_refused() -> None:
    error = refusal(b"text,text\na,b\n")
    assert error.reason is DropReason.MISSING_COLUMN
    assert error.detail.startswith("2 times the column 'text'")


def test_records_with_another_number_of_columns_are_rejected() -> None:
    first, long, short, last = parse(b"id,text\n1,a\n2,b,c\n3\n4,d")
    assert (first, last) == ("a", "d")
    reason = DropReason.WRONG_COLUMN_COUNT
    assert long == Rejected(reason, "3 columns; the header has 2", 12, 3)
    assert short == Rejected(reason, "1 columns; the header has 2", 18, 4)


def test_place_of_a_record_is_that_of_its_first_line() -> None:
    _, bad, _, worse = parse(b'id,text\n1,"a\nb"\n2\n3,"c\n\nd"\n4')
    assert isinstance(bad, Rejected)
    assert isinstance(worse, Rejected)
    assert (bad.offset, bad.line) == (16, 4)
    assert (worse.offset, worse.line) == (27, 8)


def test_text_behind_a_closing_quote_costs_one_record() -> None:
    bad, good = parse(b'id,text\n1,"a" b\n2,c\n')
    assert bad == Rejected(DropReason.INVALID_CSV, "',' expected after '\"'", 8, 2)
    assert good == "c"


def test_quote_that_is_never_closed_costs_the_file() -> None:
    error = refusal(b'id,text\n1,a\n2,"b\n3,c\n4,d\n')
    assert error.reason is DropReason.UNCLOSED_QUOTE
    assert (error.detail, error.offset) == (
        "the quote that is open in the record of line 3 is not closed by the end of the file",
        12,
    )


def test_quote_that_is_closed_too_late_costs_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_RECORD_BYTES", 50)
    error = refusal(b'id,text\n1,"a\n' + b"2,c\n" * 20 + b'"\n')
    assert error.reason is DropReason.UNCLOSED_QUOTE
    assert error.detail.startswith("the quote that is open in the record of line 2 is not closed")


def test_line_too_long_costs_one_record_outside_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 20)
    long = b"2," + b"x" * 30
    first, bad, last = parse(b"id,text\n1,a\n" + long + b"\n3,c\n")
    assert (first, last) == ("a", "c")
    assert bad == Rejected(DropReason.TOO_LONG, "a line of over 16 MiB", 12, 3)
    error = refusal(b'id,text\n1,"a\n' + long + b'"\n')
    assert error.reason is DropReason.UNCLOSED_QUOTE


def test_long_fields_are_fine() -> None:
    text = "x" * 500_000
    assert parse(f"id,text\n1,{text}\n".encode()) == [text]


def test_bad_bytes_count_in_the_text_only() -> None:
    first, bad, last = parse(b'id,text\n\xff,a\n2,"b\n\xe9"\n3,\xc3\xa9\n')
    assert (first, last) == ("a", "\u00e9")
    assert bad == Rejected(
        DropReason.INVALID_UTF8,
        "line 4: no UTF-8 after 0 bytes: invalid continuation byte",
        12,
        3,
    )


def test_nul_is_rejected() -> None:
    (bad,) = parse(b"id,text\n1,a bit of text before a\0\n")
    assert isinstance(bad, Rejected)
    assert (bad.reason, bad.line) == (DropReason.NUL_CHARACTER, 2)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.text(st.sampled_from("ab ,;\t\n'\"\u00e9"), max_size=12)),
    delimiter=st.sampled_from(",\t"),
)
def test_what_a_writer_wrote_is_read(texts: list[str], delimiter: str) -> None:
    table = io.StringIO()
    writer = csv.writer(table, delimiter=delimiter)
    writer.writerow(["id", "text"])
    writer.writerows([number, text] for number, text in enumerate(texts))
    assert parse(table.getvalue().encode(), delimiter) == texts
