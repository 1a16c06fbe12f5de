from __future__ import annotations

import gzip
import hashlib
import io

import pytest

from corpus.text import reading
from corpus.text.compression import BLOCK_BYTES
from corpus.text.drops import DropReason, RejectedFileError
from corpus.text.reading import HashingStream, read_lines
from tests.corpus.input_bytes import COMPRESS


def lines(data: bytes) -> list[bytes | None]:
    return [line.data for line in read_lines(io.BytesIO(data))]


def refusal(data: bytes) -> RejectedFileError:
    with pytest.raises(RejectedFileError) as caught:
        lines(data)
    return caught.value


def test_lines_have_offsets_and_numbers() -> None:
    found = list(read_lines(io.BytesIO(b"one\r\n\ntwo")))
    assert [tuple(line) for line in found] == [(b"one", 0, 1), (b"", 5, 2), (b"two", 6, 3)]


@pytest.mark.parametrize("kind", COMPRESS)
def test_compressed_lines_are_lines(kind: str) -> None:
    assert lines(COMPRESS[kind](b"a\nb\n")) == [b"a", b"b"]


def test_byte_order_mark_is_no_text_but_counts_as_bytes() -> None:
    for data in (b"\xef\xbb\xbfa\nb", gzip.compress(b"\xef\xbb\xbfa\nb")):
        found = list(read_lines(io.BytesIO(data)))
        assert [tuple(line) for line in found] == [(b"a", 3, 1), (b"b", 5, 2)]


def test_empty_file_has_no_lines() -> None:
    assert lines(b"") == []
    assert lines(gzip.compress(b"")) == []
    assert lines(b"\xef\xbb\xbf") == []


def test_lines_go_over_blocks() -> None:
    texts = [b"x" * (size % 7000) for size in range(0, 1_000_000, 997)]
    data = b"\n".join([*texts, b"y" * 3 * BLOCK_BYTES, b"end"])
    found = list(read_lines(io.BytesIO(data)))
    assert [line.data for line in found] == [*texts, b"y" * 3 * BLOCK_BYTES, b"end"]
    assert all(data.startswith(line.data or b"", line.offset) for line in found)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (bytes(range(256)) * 4, "100 of the first 1024 bytes are control characters"),
        ("text".encode("utf-16"), "UTF-16 data"),
        (b"PK\x03\x04rest", "zip data"),
        (b"\x89PNG\r\n\x1a\n", "PNG data"),
        (b"7z\xbc\xaf\x27\x1crest", "7-Zip data"),
        (b"%PDF-1.7", "PDF data"),
        (b"Obj\x01rest", "Avro data"),
        (gzip.compress(gzip.compress(b"text", mtime=0), mtime=0), "gzip inside compressed data"),
        (gzip.compress(COMPRESS["zstd"](b"text"), mtime=0), "Zstandard inside compressed data"),
    ],
)
def test_binary_files_are_rejected_by_name_of_what_they_are(data: bytes, name: str) -> None:
    error = refusal(data)
    assert error.reason is DropReason.BINARY_FILE
    assert error.detail.startswith(name)


def test_parquet_under_another_name_is_explained() -> None:
    error = refusal(b"PAR1 and the rest")
    assert error.reason is DropReason.WRONG_FORMAT
    assert error.detail == (
        "Parquet data, but it is read as text; end its name in .parquet or set input_format"
    )


def test_line_too_long_is_cut_out_and_the_rest_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 10)
    data = b"short\n" + b"x" * 50 + b"\n" + b"exactly10!\n" + b"y" * 11 + b"\nend\n"
    found = list(read_lines(io.BytesIO(data)))
    assert [line.data for line in found] == [b"short", None, b"exactly10!", None, b"end"]
    assert [line.offset for line in found] == [0, 6, 57, 68, 80]
    assert [line.number for line in found] == [1, 2, 3, 4, 5]


def test_endless_last_line_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 10)
    assert lines(b"a\n" + b"x" * 3 * BLOCK_BYTES) == [b"a", None]


def test_hash_is_of_the_file_as_it_is() -> None:
    data = gzip.compress(b"some text") + b"garbage"
    source = HashingStream(io.BytesIO(data))
    with pytest.raises(RejectedFileError):
        list(read_lines(source))  # type: ignore[arg-type]
    assert source.finish() == hashlib.sha256(data).hexdigest()
