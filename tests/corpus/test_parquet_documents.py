from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.text import parquet_documents, parquet_pages
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.reading import HashingStream

TEXTS = ["one", None, "two \u00e9", ""]


def table(values: Any, **settings: Any) -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(len(values))), "text": values}), data, **settings)
    return data.getvalue()


def parse(data: bytes | BinaryIO, column: str = "text") -> list[str | Rejected]:
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    return list(parquet_documents.parquet_documents(stream, column))


def refusal(data: bytes, column: str = "text") -> RejectedFileError:
    with pytest.raises(RejectedFileError) as caught:
        parse(data, column)
    return caught.value


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_column_of_any_kind_of_text_is_read_and_null_is_empty(kind: Any) -> None:
    assert parse(table(pa.array(TEXTS, pa.string()).cast(kind))) == ["one", "", "two \u00e9", ""]


def test_rows_come_in_order_from_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"document {number}" for number in range(500)]
    monkeypatch.setattr(parquet_documents, "_MAX_BATCH_ROWS", 7)
    assert parse(table(texts, row_group_size=33)) == texts


def test_stream_that_cannot_seek_is_read() -> None:
    data = table(TEXTS)
    source = HashingStream(io.BytesIO(data))
    assert len(parse(source)) == 4  # type: ignore[arg-type]


def test_file_is_read_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(table(TEXTS))
    monkeypatch.setattr(parquet_documents.tempfile, "TemporaryFile", None)
    with path.open("rb") as stream:
        assert len(parse(stream)) == 4


def test_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(table(TEXTS)))
    with path.open("rb") as stream:
        assert len(parse(stream)) == 4


@pytest.mark.parametrize("data", [b"", table(pa.array([], pa.string()))], ids=["bytes", "rows"])
def test_empty_file_has_no_documents(data: bytes) -> None:
    assert parse(data) == []


def test_rows_that_are_no_text_are_rejected_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_documents, "MAX_VALUE_BYTES", 10)
    values = pa.array([b"fine", b"bad \xff", b"nul \0", b"x" * 11], pa.binary())
    assert parse(table(values)) == [
        "fine",
        Rejected(DropReason.INVALID_UTF8, "no UTF-8 after 4 bytes: invalid start byte", 1, 0),
        Rejected(DropReason.NUL_CHARACTER, "after 4 characters", 2, 0),
        Rejected(DropReason.TOO_LONG, "a value of over 0 MiB", 3, 0),
    ]


def test_string_column_with_bytes_that_are_no_text_costs_a_row() -> None:
    storage = pa.array([b"\xff", b"fine"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, storage.buffers())
    bad, fine = parse(table(text))
    assert isinstance(bad, Rejected)
    assert fine == "fine"


def test_missing_column_is_named_with_those_that_exist() -> None:
    error = refusal(table(TEXTS), "body")
    assert error.reason is DropReason.MISSING_COLUMN
    assert error.detail == "no column 'body' (corpus.text_field); the file has 2 column(s)"


def test_column_of_numbers_is_refused() -> None:
    error = refusal(table(TEXTS), "id")
    assert error.reason is DropReason.COLUMN_IS_NOT_TEXT
    assert error.detail == "the column 'id' (corpus.text_field) is of type int64, not text"


def test_other_content_under_the_name_is_explained() -> None:
    error = refusal(b"id,text\n1,one\n")
    assert error.reason is DropReason.WRONG_FORMAT
    assert error.detail == (
        "no Parquet file, for it does not begin with PAR1; give it another name or set input_format"
    )


def test_cut_file_is_refused() -> None:
    error = refusal(table(TEXTS)[:-10])
    assert error.reason is DropReason.CORRUPT_PARQUET
    assert error.detail == "damaged, or cut short: reading it stops after 0 rows (ArrowInvalid)"


def test_damaged_directory_is_refused_or_does_no_harm() -> None:
    texts = [f"document {number}" for number in range(200)]
    data = table(texts, row_group_size=90)
    size = int.from_bytes(data[-8:-4], "little")
    refused = 0
    for place in range(len(data) - 8 - size, len(data)):
        wrong = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        try:
            found = parse(wrong)
        except RejectedFileError:
            refused += 1
        else:
            assert len(found) == len(texts)
    assert refused > size / 10


def test_damaged_values_are_refused() -> None:
    texts = [f"{number} " * 50 for number in range(2000)]
    settings = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    data = bytearray(table(texts, **settings))
    data[data.index(b"1234 ")] ^= 1
    error = refusal(bytes(data))
    assert error.reason is DropReason.CORRUPT_PARQUET
    assert error.detail == "damaged, or cut short: reading it stops after 0 rows (OSError)"


@pytest.mark.parametrize(
    "settings",
    [
        {"use_dictionary": False, "compression": "zstd"},
        {"use_dictionary": True, "compression": "snappy", "data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ],
    ids=["plain", "dictionary", "delta"],
)
def test_a_page_is_measured_before_it_is_unpacked(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{number} " + "word " * 2000 for number in range(4)]
    data = table(texts, **settings)
    largest = parquet_pages.largest_page(io.BytesIO(data), ["text"])
    assert max(map(len, texts)) < largest < 2 * sum(map(len, texts))
    assert parquet_pages.largest_page(io.BytesIO(data), ["id"]) < 200
    assert parse(data) == texts
    monkeypatch.setattr(parquet_documents, "MAX_PAGE_BYTES", largest - 1)
    error = refusal(data)
    assert error.reason is DropReason.LARGE_PAGE
    assert "a page of 0 MiB; at most 0 MiB are unpacked at once." in error.detail


def test_every_row_group_is_measured() -> None:
    data = table(["short", "short", "long " * 500], row_group_size=2, use_dictionary=False)
    assert parquet_pages.largest_page(io.BytesIO(data), ["text"]) > 2500


def test_of_a_long_value_no_more_is_copied_than_shows_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_documents, "MAX_VALUE_BYTES", 10)
    data = io.BytesIO(table(["fine", None, "x" * 1000]))
    rows = parquet_documents.parquet_rows(data, {"text": "text"})
    assert list(rows) == [(b"fine",), (None,), (b"x" * 11,)]
