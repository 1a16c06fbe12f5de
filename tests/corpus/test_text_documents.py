from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.text import compression, text_documents
from corpus.text.drops import DropReason, Rejected, RejectedFileError


def parse(data: bytes) -> list[str | Rejected]:
    return list(text_documents.text_documents(io.BytesIO(data)))


def texts(data: bytes) -> list[str]:
    found = parse(data)
    assert all(isinstance(document, str) for document in found), found
    return [document.strip() for document in found if isinstance(document, str)]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks and documents small, so that borders of both are met."""
    monkeypatch.setattr(compression, "BLOCK_BYTES", 7)
    monkeypatch.setattr("corpus.text.reading._HEAD_BYTES", 1)
    monkeypatch.setattr(text_documents, "MAX_DOCUMENT_BYTES", 20)


def test_blank_lines_separate_documents() -> None:
    assert texts(b"\n \na\nb\n\n\t\nc\n\n") == ["a\nb", "c"]
    assert texts(b"a\r\nb\r\n\r\nc") == ["a\r\nb", "c"]
    assert texts(b"  indented\n  text\n \n  more") == ["indented\n  text", "more"]
    assert texts(b"\xef\xbb\xbfa\n\nb") == ["a", "b"]


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\t\n\r\n", b"\xef\xbb\xbf"])
def test_white_space_is_no_document(data: bytes) -> None:
    assert parse(data) == []


def test_only_the_document_with_a_bad_byte_is_rejected() -> None:
    before, bad, after = parse(b"good\n\nfine so far\nbad \xe9\n\ngood again")
    assert (before, after) == ("good", "good again")
    assert bad == Rejected(
        DropReason.INVALID_UTF8,
        "no UTF-8 after 16 bytes: unexpected end of data",
        offset=6,
        line=3,
    )


def test_nul_in_text_is_rejected_document_by_document() -> None:
    first, second = parse(b"text " * 100 + b"\x00\n\nmore text")
    assert first == Rejected(DropReason.NUL_CHARACTER, "after 500 characters", 0, 1)
    assert second == "more text"


def test_blank_lines_before_a_rejected_document_are_not_its_place() -> None:
    (bad,) = parse(b"\n\n \r\n  \xff")
    assert isinstance(bad, Rejected)
    assert (bad.offset, bad.line) == (7, 4)


@pytest.mark.parametrize(
    "data", [b'{"text": "a"}\n{"text": "b"}\n', b' [{"text": 1}]', b'{\n  "id": 5,\n  "x": 1}']
)
def test_json_under_another_name_is_explained(data: bytes) -> None:
    with pytest.raises(RejectedFileError) as caught:
        parse(data)
    assert caught.value.reason is DropReason.WRONG_FORMAT
    assert caught.value.detail == (
        "it begins like JSON, but it is read as text; end its name in .jsonl (one object a line) "
        "or set corpus.input_format"
    )


def test_braces_in_text_are_no_json() -> None:
    assert texts(b'{curly} text\n\n{"key": 1}') == ["{curly} text", '{"key": 1}']


def test_document_too_long_is_rejected_as_one(tiny: None) -> None:
    first, second = parse(b"\n0123456789\n" + b"0123456789\n" * 99 + b"\n\nshort")
    assert first == Rejected(
        DropReason.TOO_LONG, "over 0 MiB; a blank line ends a document", offset=1, line=2
    )
    assert second == "short"


def test_places_are_right_behind_what_was_dropped(tiny: None) -> None:
    data = b"x" * 100 + b"\nx\n" + b" \n" * 50 + b"\n\n bad \xff\n\n" + b"\n" * 50 + b"b\xff"
    long, bad, worse = parse(data)
    assert [r.reason for r in (long, bad, worse) if isinstance(r, Rejected)] == [
        DropReason.TOO_LONG,
        DropReason.INVALID_UTF8,
        DropReason.INVALID_UTF8,
    ]
    assert isinstance(bad, Rejected)
    assert isinstance(worse, Rejected)
    assert (bad.offset, bad.line) == (data.index(b"bad"), 55)
    assert (worse.offset, worse.line) == (data.index(b"b\xff"), data.count(b"\n") + 1)


def test_white_space_around_a_document_does_not_count_as_its_length(tiny: None) -> None:
    spaces = b" " * 500
    exact = b"x" * 20
    assert texts(spaces + exact + spaces + b"\n" + spaces) == [exact.decode()]
    (long,) = parse(spaces + exact + b"x" + spaces)
    assert isinstance(long, Rejected)


@settings(max_examples=300, deadline=None)
@given(
    data=st.lists(st.sampled_from([b"a", b"b c", b"\n", b"\r\n", b" ", b"\t", b"x" * 9])).map(
        b"".join
    ),
    size=st.integers(1, 9),
)
def test_documents_are_what_a_loop_over_lines_finds(data: bytes, size: int) -> None:
    expected: list[list[bytes]] = [[]]
    for line in data.split(b"\n"):
        if line.strip():
            expected[-1].append(line)
        elif expected[-1]:
            expected.append([])
    blocks = iter([data[begin : begin + size] for begin in range(0, len(data), size)])
    found = text_documents._Splitter(0, "blank_line").split(blocks)
    assert [
        [line.strip() for line in document.split("\n") if line.strip()]
        for document in found
        if isinstance(document, str)
    ] == [[line.decode().strip() for line in document] for document in expected if document]
