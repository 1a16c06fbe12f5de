from __future__ import annotations

import io

import pytest

from corpus.text import reading
from corpus.text.drops import DropReason, Rejected
from corpus.text.json_documents import json_documents


def parse(data: bytes) -> list[str | Rejected]:
    return list(json_documents(io.BytesIO(data), "text"))


def rejection(data: bytes) -> Rejected:
    (found,) = parse(data)
    assert isinstance(found, Rejected)
    return found


def test_a_document_is_a_line() -> None:
    data = b'{"text": "a\\n\\nb"}\n\n{"id": 1, "text": "\\u00e9"}\r\n'
    assert parse(data) == ["a\n\nb", "\u00e9"]


def test_null_is_an_empty_document() -> None:
    assert parse(b'{"text": null}') == [""]


@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (b"{", "invalid_json", "Expecting property name enclosed in double quotes"),
        (b"plain text", "invalid_json", "Expecting value: line 1 column 1 (char 0)"),
        (b"[" * 100_000, "invalid_json", "it is nested too deeply"),
        (b"1" * 5000, "invalid_json", "a number has too many digits"),
        (b'"text"', "missing_field", "no field 'text' (corpus.text_field) in str"),
        (
            b'{"id": 1, "body": "a"}',
            "missing_field",
            "no field 'text' (corpus.text_field) in an object of 2 field(s)",
        ),
        (
            b'{"text": 5}',
            "field_is_not_text",
            "the field 'text' (corpus.text_field) is of type int",
        ),
        (
            b'{"text": ["a"]}',
            "field_is_not_text",
            "the field 'text' (corpus.text_field) is of type list",
        ),
        (b'{"text": "\\ud800"}', "lone_surrogate", "the field 'text' (corpus.text_field) has half"),
        (b'{"text": "a\\u0000b"}', "nul_character", "after 1 characters"),
        (b'{"text": "\xff"}', "invalid_utf8", "no UTF-8 after 10 bytes: invalid start byte"),
    ],
)
def test_wrong_lines_are_rejected(data: bytes, reason: str, detail: str) -> None:
    found = rejection(data)
    assert (found.reason, found.offset, found.line) == (reason, 0, 1)
    assert found.detail.startswith(detail)


def test_surrogate_pairs_are_characters() -> None:
    assert parse(b'{"text": "\\ud83d\\ude00"}') == ["\U0001f600"]


def test_line_too_long_is_rejected_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 20)
    first, long, last = parse(b'{"text": "a"}\n{"text": "' + b"x" * 50 + b'"}\n{"text": "b"}')
    assert (first, last) == ("a", "b")
    assert long == Rejected(DropReason.TOO_LONG, "a line of over 16 MiB", 14, 2)
