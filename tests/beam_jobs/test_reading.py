from __future__ import annotations

import gzip
import io

import pytest

from beam_jobs import documents, reading
from beam_jobs.documents import Document, Rejected, parse_documents
from beam_jobs.drops import DropReason
from beam_jobs.inputs import InputFormat
from beam_jobs.reading import RejectedFileError, read_lines


def lines(data: bytes) -> list[bytes | None]:
    return [line.data for line in read_lines(io.BytesIO(data))]


def parse(data: bytes, input_format: InputFormat = "text") -> list[Document | Rejected]:
    return list(parse_documents(read_lines(io.BytesIO(data)), input_format, "text"))


def texts(data: bytes, input_format: InputFormat = "text") -> list[str]:
    found = parse(data, input_format)
    assert all(isinstance(document, Document) for document in found)
    return [document.text for document in found if isinstance(document, Document)]


def rejection(data: bytes, input_format: InputFormat = "text") -> Rejected:
    (found,) = parse(data, input_format)
    assert isinstance(found, Rejected)
    return found


def test_lines_have_offsets_and_numbers() -> None:
    found = list(read_lines(io.BytesIO(b"one\r\n\ntwo")))
    assert [tuple(line) for line in found] == [(b"one", 0, 1), (b"", 5, 2), (b"two", 6, 3)]


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"a\nb\n"),
        gzip.compress(b"a\n") + gzip.compress(b"b\n"),
        gzip.compress(b"") + gzip.compress(b"a\nb"),
        b"\xef\xbb\xbfa\nb\n",
        gzip.compress(b"\xef\xbb\xbfa\nb\n"),
    ],
    ids=["gzip", "two members", "empty member", "byte order mark", "both"],
)
def test_text_comes_in_many_wrappings(data: bytes) -> None:
    assert lines(data) == [b"a", b"b"]


def test_compression_is_found_by_content_whatever_the_source_returns_at_once() -> None:
    class Dribble(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._data = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            data = self._data.read(min(5, len(buffer)))
            buffer[: len(data)] = data
            return len(data)

    packed = gzip.compress(b"some text\n" * 50)
    assert len(list(read_lines(Dribble(packed)))) == 50  # type: ignore[arg-type]


def test_empty_file_has_no_lines() -> None:
    assert lines(b"") == []
    assert lines(gzip.compress(b"")) == []


@pytest.mark.parametrize("cut", [1, 8, 200])
def test_truncated_gzip_is_rejected(cut: int) -> None:
    packed = gzip.compress(bytes(str(list(range(5000))), "ascii"))
    with pytest.raises(RejectedFileError) as caught:
        lines(packed[:-cut])
    assert caught.value.reason is DropReason.TRUNCATED_GZIP


@pytest.mark.parametrize("position", [2, -30, -6])
def test_damaged_gzip_is_rejected(position: int) -> None:
    packed = bytearray(gzip.compress(b"some text that is long enough\n" * 100))
    packed[position] ^= 0xFF
    with pytest.raises(RejectedFileError) as caught:
        lines(bytes(packed))
    assert caught.value.reason is DropReason.CORRUPT_GZIP


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (bytes(range(256)) * 4, "control characters"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"BZh91AY&SY", "bzip2"),
        (b"PK\x03\x04rest", "zip"),
        (gzip.compress(gzip.compress(b"text")), "gzip inside gzip"),
    ],
)
def test_binary_files_are_rejected_by_name_of_what_they_are(data: bytes, name: str) -> None:
    with pytest.raises(RejectedFileError, match=name) as caught:
        lines(data)
    assert caught.value.reason is DropReason.BINARY_FILE


def test_line_too_long_is_cut_out_and_the_rest_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 10)
    data = b"short\n" + b"x" * 50 + b"\n" + b"exactly 9\n" + b"y" * 10 + b"\n"
    assert lines(data) == [b"short", None, b"exactly 9", None]
    assert [line.offset for line in read_lines(io.BytesIO(data))] == [0, 6, 57, 67]


def test_blank_lines_separate_documents() -> None:
    assert texts(b"\n \na\nb\n\n\t\nc\n\n") == ["a\nb", "c"]
    assert texts(b"a\r\nb\r\n\r\nc") == ["a\nb", "c"]


def test_google_sample_format_has_sentences_by_line() -> None:
    assert texts(b"One.\nTwo.\n\nThree.", "sentences") == ["One.\nTwo.", "Three."]


def test_jsonl_has_a_document_a_line() -> None:
    data = b'{"text": "a\\n\\nb"}\n\n{"id": 1, "text": "\\u00e9"}\n'
    assert texts(data, "jsonl") == ["a\n\nb", "\u00e9"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", DropReason.INVALID_JSON),
        (b"plain text", DropReason.INVALID_JSON),
        (b"[" * 100_000, DropReason.INVALID_JSON),
        (b"1" * 5000, DropReason.INVALID_JSON),
        (b'"text"', DropReason.MISSING_FIELD),
        (b'{"body": "a"}', DropReason.MISSING_FIELD),
        (b'{"text": 5}', DropReason.FIELD_IS_NOT_TEXT),
        (b'{"text": null}', DropReason.FIELD_IS_NOT_TEXT),
        (b'{"text": "\\ud800"}', DropReason.LONE_SURROGATE),
        (b'{"text": "a\\u0000b"}', DropReason.NUL_CHARACTER),
        (b'{"text": "\xff"}', DropReason.INVALID_UTF8),
    ],
)
def test_wrong_json_is_rejected(data: bytes, reason: DropReason) -> None:
    assert rejection(data, "jsonl").reason is reason


def test_rejection_says_what_fields_there_are() -> None:
    assert "body, id" in rejection(b'{"id": 1, "body": "a"}', "jsonl").detail


def test_only_the_document_with_a_bad_byte_is_rejected() -> None:
    before, bad, after = parse(b"good\n\nfine so far\nbad \xe9\n\ngood again")
    assert isinstance(before, Document)
    assert isinstance(after, Document)
    assert bad == Rejected(DropReason.INVALID_UTF8, bad.detail, offset=6, line=3)  # type: ignore[union-attr]
    assert "0xe9 at about offset 22" in bad.detail  # type: ignore[union-attr]


def test_nul_in_text_is_rejected_document_by_document() -> None:
    padding = b"text " * 100
    first, second = parse(padding + b"\x00\n\n" + padding)
    assert isinstance(first, Rejected)
    assert first.reason is DropReason.NUL_CHARACTER
    assert isinstance(second, Document)


def test_document_too_long_is_rejected_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 20)
    first, second = parse(b"0123456789\n" * 100 + b"\nshort")
    assert isinstance(first, Rejected)
    assert (first.reason, first.offset, first.line) == (DropReason.TOO_LONG, 0, 1)
    assert isinstance(second, Document)
