"""Reads documents from a field of records, with the group that a second field names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from corpus.text.cleaning import DocumentError
from corpus.text.drops import DropReason, Rejected
from corpus.text.json_documents import json_objects, texts_of
from corpus.text.tables import called, table_rows


class FoundDocument(NamedTuple):
    """A document's text, and the group of records that it belongs to, if any."""

    text: str
    group: str | None = None


def _shown(group_field: str) -> str:
    return f"{group_field!r} (corpus.group_field)"


def grouped_json_documents(
    stream: BinaryIO, text_field: str, group_field: str
) -> Iterator[FoundDocument | Rejected]:
    """Yield the documents of a file of JSON lines in order.

    :raises RejectedFileError: as :func:`corpus.text.json_documents.json_objects`.
    """
    text = {called(text_field): text_field}
    for found in json_objects(stream, text | {_shown(group_field): group_field}):
        if isinstance(found, Rejected):
            yield found
            continue
        try:
            group = _group(found.fields[group_field], group_field)
            yield FoundDocument(texts_of(found.fields, text)[0], group)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, found.offset, found.line)


def grouped_table_documents(
    stream: BinaryIO, delimiter: str, text_column: str, group_column: str
) -> Iterator[FoundDocument | Rejected]:
    """Yield the documents of a table in order.

    :raises RejectedFileError: as :func:`corpus.text.tables.table_rows`.
    """
    wanted = {called(text_column): text_column, _shown(group_column): group_column}
    for found in table_rows(stream, delimiter, wanted):
        if isinstance(found, Rejected):
            yield found
        else:
            text, group = found.values
            yield FoundDocument(text, group or None)


def grouped_parquet_documents(
    stream: BinaryIO, text_column: str, group_column: str
) -> Iterator[FoundDocument | Rejected]:
    """Yield the documents of a Parquet file in order.

    :raises RejectedFileError: as :func:`corpus.text.parquet_documents.parquet_rows`.
    """
    # Takes a second to import, and most corpora have no Parquet file.
    from corpus.text.parquet_documents import parquet_rows, text_of_bytes

    rows = parquet_rows(
        stream, {called(text_column): text_column}, {_shown(group_column): group_column}
    )
    for row, (text, value) in enumerate(rows):
        try:
            group = text_of_bytes(value) if isinstance(value, bytes) else value
            yield FoundDocument(text_of_bytes(text), _group(group, group_column))
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, row, 0)


def _group(value: Any, group_field: str) -> str | None:
    """Return the group that a value names; None if the record has no group.

    :raises DocumentError: it is neither text nor a whole number.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    detail = f"the field {_shown(group_field)} is of type {type(value).__name__}"
    raise DocumentError(DropReason.FIELD_IS_NOT_TEXT, detail)
