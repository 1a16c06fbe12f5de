"""Reads records of CSV and TSV files (RFC 4180), and documents: one column, one per record."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from corpus.text.cleaning import DocumentError, refuse_nul
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.reading import MAX_LINE_BYTES, MEBIBYTE, Line, read_lines
from pipeline_config.unquoted import fault

MAX_RECORD_BYTES = MAX_LINE_BYTES
# The module's default limit of a field is 128 KiB; the limit holds for the whole process.
csv.field_size_limit(2 * MAX_RECORD_BYTES)


class TableRow(NamedTuple):
    """A record: the values of the wanted columns, in their order, and its place.

    ``offset`` counts bytes of the uncompressed file from 0, ``line`` lines from 1.
    """

    values: list[str]
    offset: int
    line: int


def table_documents(stream: BinaryIO, delimiter: str, text_column: str) -> Iterator[str | Rejected]:
    """Yield the documents of a plain or compressed file with a header line, in order.

    :raises RejectedFileError: as :func:`table_rows`.
    """
    for found in table_rows(stream, delimiter, {called(text_column): text_column}):
        yield found if isinstance(found, Rejected) else found.values[0]


def called(text_field: str) -> str:
    """Return the name in messages of the field or column that holds a corpus's text."""
    return f"{text_field!r} (corpus.text_field)"


def table_rows(
    stream: BinaryIO,
    delimiter: str,
    wanted: Mapping[str, str],
    *,
    columns: Sequence[str] = (),
    quotechar: str = '"',
    hint: str = "",
) -> Iterator[TableRow | Rejected]:
    """Yield the records of a plain or compressed file in order, and those that cannot be used.

    :param wanted: the names of the columns by what messages call them.
    :param columns: names of all columns of a file that has no header line.
    :param quotechar: character that fields may be quoted with; empty if quotes are text.
    :param hint: added to the message if a column is missing.
    :raises RejectedFileError: it is binary, its compressed data is cut short or damaged, it has no
        such column, or a quote is never closed.
    """
    lines = _RecordLines(read_lines(stream))
    quoting: Any = (
        {"quotechar": quotechar} if quotechar else {"quoting": csv.QUOTE_NONE, "quotechar": None}
    )
    rows = csv.reader(lines, delimiter=delimiter, strict=True, **quoting)
    names = list(columns) or _header(rows, lines)
    if names is None:
        return
    hints = filter(None, [f"columns are separated by {delimiter!r}", hint])
    numbers = find_columns(names, wanted, "; ".join(hints))
    while True:
        try:
            row = lines.next_record(rows)
            if row is None:
                return
            yield TableRow(_fields(row, len(names), numbers, lines), lines.offset, lines.number)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, lines.offset, lines.number)


def find_columns(columns: list[str], wanted: Mapping[str, str], hint: str = "") -> list[int]:
    """Return the indexes of columns.

    :param wanted: their names by what messages call them.
    :raises RejectedFileError: no column has one of the names, or several have.
    """
    wrong = [
        f"{'no' if name not in columns else f'{columns.count(name)} times the'} column {shown}"
        for shown, name in wanted.items()
        if columns.count(name) != 1
    ]
    if not wrong:
        return [columns.index(name) for name in wanted.values()]
    # The names that exist are not listed: they would reveal the first line of any file.
    detail = f"{', '.join(wrong)}; the file has {len(columns)} column(s)"
    raise RejectedFileError(DropReason.MISSING_COLUMN, f"{detail}; {hint}" if hint else detail)


class _RecordLines:
    """Passes lines to a CSV reader and remembers where their record begins."""

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
            self.bad_byte = f"line {number}: {fault(error)}"
            return data.decode(errors="surrogateescape") + "\n"

    def unclosed_quote(self, where: str) -> RejectedFileError:
        """Return the error that no record after the current one can be told apart."""
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
                # The message has the delimiter as it is, which would be an invisible tab for TSV.
                detail = str(error).replace("\t", "\\t")
                raise DocumentError(DropReason.INVALID_CSV, detail) from error
        return row


def _header(rows: Iterator[list[str]], lines: _RecordLines) -> list[str] | None:
    try:
        return lines.next_record(rows)
    except DocumentError as error:
        detail = f"the header cannot be read: {error.detail}"
        raise RejectedFileError(DropReason.MISSING_COLUMN, detail) from error


def _fields(row: list[str], columns: int, numbers: Sequence[int], lines: _RecordLines) -> list[str]:
    if len(row) != columns:
        detail = f"{len(row)} columns; the header has {columns}"
        raise DocumentError(DropReason.WRONG_COLUMN_COUNT, detail)
    return [_checked(row[number], lines) for number in numbers]


def _checked(text: str, lines: _RecordLines) -> str:
    if lines.bad_byte and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DocumentError(DropReason.INVALID_UTF8, lines.bad_byte) from None
    return refuse_nul(text)
