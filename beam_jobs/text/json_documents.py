"""Documents of JSON lines: a field of one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO

from beam_jobs.text.decoding import DocumentError, decode, refuse_nul, refuse_surrogates
from beam_jobs.text.drops import DropReason, Rejected
from beam_jobs.text.reading import MAX_LINE_BYTES, MEBIBYTE, read_lines

_NAMED_FIELDS = 10


def json_documents(stream: BinaryIO, text_field: str) -> Iterator[str | Rejected]:
    """Yield the documents of a plain or compressed file in order; ``null`` is an empty one.

    :raises RejectedFileError: it is binary, or its compressed data is cut short or damaged.
    """
    for data, offset, number in read_lines(stream):
        try:
            if data is None:
                limit = f"a line of over {MAX_LINE_BYTES // MEBIBYTE} MiB"
                raise DocumentError(DropReason.TOO_LONG, limit)
            if data and not data.isspace():
                yield _field(decode(data), text_field)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, offset, number)


def _field(line: str, name: str) -> str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DocumentError(DropReason.INVALID_JSON, str(error)) from error
    if not isinstance(found, dict) or name not in found:
        has = ", ".join(sorted(found)[:_NAMED_FIELDS]) if isinstance(found, dict) else _kind(found)
        raise DocumentError(DropReason.MISSING_FIELD, f"no field {name!r}; found: {has}")
    text = found[name]
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
