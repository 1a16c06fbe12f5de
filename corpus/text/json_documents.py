"""Objects of JSON lines; their documents: a field of one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from corpus.text.decoding import DocumentError, decode, refuse_nul, refuse_surrogates
from corpus.text.drops import DropReason, Rejected
from corpus.text.reading import MAX_LINE_BYTES, MEBIBYTE, read_lines


class JsonObject(NamedTuple):
    """An object and where it begins: bytes from 0, lines from 1."""

    fields: dict[str, Any]
    offset: int
    line: int


def json_documents(stream: BinaryIO, text_field: str) -> Iterator[str | Rejected]:
    """Yield the documents of a plain or compressed file in order; ``null`` is an empty one.

    :raises RejectedFileError: it is binary, or its compressed data is cut short or damaged.
    """
    for found in json_objects(stream, [text_field]):
        if isinstance(found, Rejected):
            yield found
            continue
        try:
            yield text_of(found.fields, text_field)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, found.offset, found.line)


def json_objects(stream: BinaryIO, names: Sequence[str]) -> Iterator[JsonObject | Rejected]:
    """Yield the objects of a plain or compressed file in order, and what cannot be used.

    :param names: fields that every object must have.
    :raises RejectedFileError: it is binary, or its compressed data is cut short or damaged.
    """
    for data, offset, number in read_lines(stream):
        try:
            if data is None:
                limit = f"a line of over {MAX_LINE_BYTES // MEBIBYTE} MiB"
                raise DocumentError(DropReason.TOO_LONG, limit)
            if data and not data.isspace():
                yield JsonObject(_object(decode(data), names), offset, number)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, offset, number)


def _object(line: str, names: Sequence[str]) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DocumentError(DropReason.INVALID_JSON, str(error)) from error
    missing = [name for name in names if not isinstance(found, dict) or name not in found]
    if missing:
        # Not which there are: names are content of the file, too.
        has = f"an object of {len(found)} field(s)" if isinstance(found, dict) else _kind(found)
        lacks = ", ".join(map(repr, missing))
        raise DocumentError(DropReason.MISSING_FIELD, f"no field {lacks} in {has}")
    fields: dict[str, Any] = found
    return fields


def text_of(fields: Mapping[str, Any], name: str) -> str:
    """Return the text of an object's field; of ``null`` the empty one.

    :raises DocumentError: it is no text, or none that can be used.
    """
    text = fields[name]
    if text is None:
        return ""
    if not isinstance(text, str):
        detail = f"{name!r} is of type {_kind(text)}"
        raise DocumentError(DropReason.FIELD_IS_NOT_TEXT, detail)
    if not text.isascii():
        refuse_surrogates(text, name)
    return refuse_nul(text)


def _kind(found: object) -> str:
    return type(found).__name__
