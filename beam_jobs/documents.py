"""Lines to documents, in each of the input formats. What cannot be a document is rejected."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from beam_jobs.drops import DropReason
from beam_jobs.inputs import InputFormat
from beam_jobs.reading import MAX_LINE_BYTES, Line

MAX_DOCUMENT_BYTES = MAX_LINE_BYTES
_MEBIBYTE = 1 << 20


class Document(NamedTuple):
    """Text as it was read, and where: see :class:`beam_jobs.reading.Line`."""

    text: str
    offset: int
    line: int


class Rejected(NamedTuple):
    """A document that cannot be used, and why."""

    reason: DropReason
    detail: str
    offset: int
    line: int


def parse_documents(
    lines: Iterable[Line], input_format: InputFormat, text_field: str
) -> Iterator[Document | Rejected]:
    """Yield the documents of a file in order.

    :param lines: :func:`beam_jobs.reading.read_lines`.
    :param input_format: ``text`` and ``sentences``: a blank line ends a document. ``jsonl``: every
        line that is not blank is a document.
    :param text_field: the field with the text, for ``jsonl``.
    """
    if input_format != "jsonl":
        return _blocks(lines)
    return (_object(line, text_field) for line in lines if line.data is None or line.data.strip())


def _blocks(lines: Iterable[Line]) -> Iterator[Document | Rejected]:
    block: list[Line] = []
    size = 0
    for line in lines:
        if line.data is not None and not line.data.strip():
            if block:
                yield _block(block)
            block, size = [], 0
            continue
        size += MAX_DOCUMENT_BYTES if line.data is None else len(line.data)
        # A document that is too long is not kept, only remembered, so that memory stays flat.
        if block and size > MAX_DOCUMENT_BYTES:
            line = line._replace(data=None)  # noqa: PLW2901
            block = block[:1]
        block.append(line)
    if block:
        yield _block(block)


def _block(block: list[Line]) -> Document | Rejected:
    parts = [line.data for line in block]
    return _text(parts, block[0])


def _text(parts: list[bytes | None], first: Line) -> Document | Rejected:
    """Decode a document's lines, or say why that is impossible."""
    if None in parts:
        return Rejected(
            DropReason.TOO_LONG,
            f"over {MAX_DOCUMENT_BYTES // _MEBIBYTE} MiB; a blank line ends a document",
            first.offset,
            first.number,
        )
    try:
        text = b"\n".join(part for part in parts if part is not None).decode()
    except UnicodeDecodeError as error:
        where = first.offset + error.start
        detail = f"byte 0x{error.object[error.start]:02x} at about offset {where}: {error.reason}"
        return Rejected(DropReason.INVALID_UTF8, detail, first.offset, first.number)
    return _checked(text, first)


def _checked(text: str, first: Line) -> Document | Rejected:
    if "\0" in text:
        where = f"after {text.index(chr(0))} characters"
        return Rejected(DropReason.NUL_CHARACTER, where, first.offset, first.number)
    return Document(text, first.offset, first.number)


def _object(line: Line, text_field: str) -> Document | Rejected:
    decoded = _text([line.data], line)
    if isinstance(decoded, Rejected):
        return decoded

    def reject(reason: DropReason, detail: str) -> Rejected:
        return Rejected(reason, detail, line.offset, line.number)

    try:
        found = json.loads(decoded.text)
    except (ValueError, RecursionError) as error:
        return reject(DropReason.INVALID_JSON, str(error))
    if not isinstance(found, dict) or text_field not in found:
        has = ", ".join(sorted(found)[:10]) if isinstance(found, dict) else type(found).__name__
        return reject(DropReason.MISSING_FIELD, f"no field {text_field!r}; found: {has}")
    text = found[text_field]
    if not isinstance(text, str):
        kind = type(text).__name__
        return reject(DropReason.FIELD_IS_NOT_TEXT, f"{text_field!r} is of type {kind}")
    try:
        text.encode()
    except UnicodeEncodeError:
        return reject(DropReason.LONE_SURROGATE, f"{text_field!r} has half a surrogate pair")
    return _checked(text, line)
