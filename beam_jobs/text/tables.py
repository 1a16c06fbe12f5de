"""Documents of CSV and TSV files: one column, a document a record (RFC 4180)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import BinaryIO

from beam_jobs.text.decoding import DocumentError, refuse_nul
from beam_jobs.text.drops import DropReason, Rejected, RejectedFileError
from beam_jobs.text.reading import MAX_LINE_BYTES, MEBIBYTE, Line, read_lines

MAX_RECORD_BYTES = MAX_LINE_BYTES
_NAMED_COLUMNS = 10
# The module's own limit of a field is 128 KiB, and one for the whole process.
csv.field_size_limit(2 * MAX_RECORD_BYTES)


def table_documents(stream: BinaryIO, delimiter: str, text_column: str) -> Iterator[str | Rejected]:
    """Yield the documents of a plain or compressed file with a header line, in order.

    :raises RejectedFileError: it is binary, its compressed data is cut short or damaged, it has no
        such column, or a quote is never closed.
    """
    lines = _RecordLines(read_lines(stream))
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    columns = _header(rows, lines)
    if columns is None:
        return
    column = find_column(columns, text_column, f"columns are separated by {delimiter!r}")
    while True:
        try:
            row = lines.next_record(rows)
            if row is None:
                return
            yield _field(row, len(columns), column, lines)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, lines.offset, lines.number)


def find_column(columns: list[str], name: str, hint: str = "") -> int:
    """Return the number of a column.

    :raises RejectedFileError: there is none of that name, or more than one.
    """
    if columns.count(name) == 1:
        return columns.index(name)
    some = "no" if name not in columns else f"{columns.count(name)} times the"
    found = ", ".join(map(repr, columns[:_NAMED_COLUMNS]))
    detail = f"{some} column {name!r} (corpus.text_field); found: {found}"
    raise RejectedFileError(DropReason.MISSING_COLUMN, f"{detail}; {hint}" if hint else detail)


class _RecordLines:
    """Hands lines to a CSV reader and remembers where the record begins that they belong to."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._size: int | None = None
        self.offset = 0
        self.number = 0
        self.bad_byte = ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next line.

        :raises DocumentError: it is too long, and the first of a record.
        :raises RejectedFileError: the record that it continues is too long.
        """
        data, offset, number = next(self._lines)
        if self._size is None:
            self._size, self.offset, self.number = 0, offset, number
            if data is None:
                limit = f"a line of over {MAX_RECORD_BYTES // MEBIBYTE} MiB"
                raise DocumentError(DropReason.TOO_LONG, limit)
        self._size += 0 if data is None else len(data)
        if data is None or self._size > MAX_RECORD_BYTES:
            raise self.unclosed_quote(f"within {MAX_RECORD_BYTES // MEBIBYTE} MiB")
        try:
            return data.decode() + "\n"
        except UnicodeDecodeError as error:
            where = f"after {error.start} bytes of line {number}"
            self.bad_byte = f"byte 0x{data[error.start]:02x} {where}: {error.reason}"
            return data.decode(errors="surrogateescape") + "\n"

    def unclosed_quote(self, where: str) -> RejectedFileError:
        """Return the reason why nothing after the current record can be told apart."""
        detail = f"the quote that is open in the record of line {self.number} is not closed {where}"
        return RejectedFileError(DropReason.UNCLOSED_QUOTE, detail, self.offset)

    def next_record(self, rows: Iterator[list[str]]) -> list[str] | None:
        """Return the next record that is not blank, None after the last one.

        :raises DocumentError: it cannot be read.
        :raises RejectedFileError: it does not end.
        """
        row: list[str] = []
        while not row:
            self._size, self.bad_byte = None, ""
            try:
                row = next(rows)
            except StopIteration:
                return None
            except csv.Error as error:
                if "unexpected end of data" in str(error):
                    raise self.unclosed_quote("by the end of the file") from error
                raise DocumentError(DropReason.INVALID_CSV, str(error)) from error
        return row


def _header(rows: Iterator[list[str]], lines: _RecordLines) -> list[str] | None:
    try:
        return lines.next_record(rows)
    except DocumentError as error:
        detail = f"the header cannot be read: {error.detail}"
        raise RejectedFileError(DropReason.MISSING_COLUMN, detail) from error


def _field(row: list[str], columns: int, column: int, lines: _RecordLines) -> str:
    if len(row) != columns:
        detail = f"{len(row)} columns; the header has {columns}"
        raise DocumentError(DropReason.WRONG_COLUMN_COUNT, detail)
    text = row[column]
    if lines.bad_byte and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DocumentError(DropReason.INVALID_UTF8, lines.bad_byte) from error
    return refuse_nul(text)
