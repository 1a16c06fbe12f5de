"""Reads objects from JSON lines, and documents, which are a field of one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from corpus.text.cleaning import DocumentError, decode, refuse_nul, refuse_surrogates
from corpus.text.drops import DropReason, Rejected
from corpus.text.reading import MAX_LINE_BYTES, MEBIBYTE, read_lines
from corpus.text.tables import called
from pipeline_config.unquoted import fault


class JsonObject(NamedTuple):
    """An object and where it begins: bytes from 0, lines from 1."""

    fields: dict[str, Any]
    offset: int
    line: int


def json_documents(stream: BinaryIO, text_field: str) -> Iterator[str | Rejected]:
    """Yield the documents of a plain or compressed file in order; ``null`` is an empty one.

    :raises RejectedFileError: it is binary, or its compressed data is cut short or damaged.
    """
    wanted = {called(text_field): text_field}
    for found in json_objects(stream, wanted):
        if isinstance(found, Rejected):
            yield found
            continue
        try:
            yield from texts_of(found.fields, wanted)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, found.offset, found.line)


def json_objects(stream: BinaryIO, wanted: Mapping[str, str]) -> Iterator[JsonObject | Rejected]:
    """Yield the objects of a plain or compressed file in order, and what cannot be used.

    :param wanted: names of fields that every object must have, by what messages call them.
    :raises RejectedFileError: it is binary, or its compressed data is cut short or damaged.
    """
    for data, offset, number in read_lines(stream):
        try:
            if data is None:
                limit = f"a line of over {MAX_LINE_BYTES // MEBIBYTE} MiB"
                raise DocumentError(DropReason.TOO_LONG, limit)
            if data and not data.isspace():
                yield JsonObject(_object(decode(data), wanted), offset, number)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, offset, number)


def _object(line: str, wanted: Mapping[str, str]) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except RecursionError as error:
        raise DocumentError(DropReason.INVALID_JSON, "it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise DocumentError(DropReason.INVALID_JSON, fault(error)) from None
    except ValueError:
        raise DocumentError(DropReason.INVALID_JSON, "a number has too many digits") from None
    missing = [
        shown for shown, name in wanted.items() if not isinstance(found, dict) or name not in found
    ]
    if missing:
        # The names that exist are not listed: they are content of the file, too.
        has = f"an object of {len(found)} field(s)" if isinstance(found, dict) else _kind(found)
        raise DocumentError(DropReason.MISSING_FIELD, f"no field {', '.join(missing)} in {has}")
    fields: dict[str, Any] = found
    return fields


def texts_of(fields: Mapping[str, Any], wanted: Mapping[str, str]) -> list[str]:
    """Return the texts of an object's fields; ``null`` is an empty one.

    :param wanted: their names by what messages call them.
    :raises DocumentError: one is no text, or no usable one.
    """
    return [_text(fields[name], shown) for shown, name in wanted.items()]


def _text(text: Any, shown: str) -> str:
    if text is None:
        return ""
    if not isinstance(text, str):
        detail = f"the field {shown} is of type {_kind(text)}"
        raise DocumentError(DropReason.FIELD_IS_NOT_TEXT, detail)
    if not text.isascii():
        refuse_surrogates(text, shown)
    return refuse_nul(text)


def _kind(found: object) -> str:
    return type(found).__name__
