"""Reads rows of Parquet files, and documents, which are one column with a document per row."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.errors import is_of_machine
from corpus.text.cleaning import DocumentError, decode
from corpus.text.compression import read_blocks
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.parquet_pages import MAX_PAGE_BYTES, largest_page
from corpus.text.reading import MAX_LINE_BYTES, MEBIBYTE
from corpus.text.tables import called, find_columns
from pipeline_config.unquoted import fault

MAX_VALUE_BYTES = MAX_LINE_BYTES
_MAGIC = b"PAR1"
# A dictionary lets a few bytes stand for a long value, so the only known limit of a decoded batch
# is its number of rows times the size of the page that holds the longest value.
_BATCH_BYTES = 64 * MEBIBYTE
_MAX_BATCH_ROWS = 16
_READ_AHEAD_BYTES = 1 << 20


def parquet_documents(stream: BinaryIO, text_column: str) -> Iterator[str | Rejected]:
    """Yield the documents of a Parquet file in order; a null is an empty one.

    :raises RejectedFileError: as :func:`parquet_rows`.
    """
    rows = parquet_rows(stream, {called(text_column): text_column})
    for row, (value,) in enumerate(rows):
        try:
            yield text_of_bytes(value)
        except DocumentError as error:
            yield Rejected(error.reason, error.detail, row, 0)


def parquet_rows(
    stream: BinaryIO, texts: Mapping[str, str], others: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns of every row; text columns as bytes, or None.

    A Parquet file is read from its end, so a stream that is not a file of this machine is first
    copied to a temporary one. The offset of a rejected document is the number of its row, from 0.

    :param texts: names of columns that must hold text, by what messages call them.
    :param others: the same for columns that may hold anything.
    :raises RejectedFileError: it is no Parquet file or damaged, has no such column, or a column
        holds no text.
    :raises MemoryError: this machine has not enough memory; this says nothing about the file.
    :raises OSError: it cannot be read; this says nothing about the file either.
    """
    with _as_file(stream) as file:
        head = file.read(len(_MAGIC))
        if head and head != _MAGIC:
            detail = f"no Parquet file, for it does not begin with {_MAGIC.decode()}"
            raise RejectedFileError(
                DropReason.WRONG_FORMAT, f"{detail}; give it another name or set input_format"
            )
        if head:
            yield from _rows(file, texts, others or {})


def text_of_bytes(value: bytes | None) -> str:
    """Return the text of a value; None is an empty text.

    :raises DocumentError: it is too long, no UTF-8, or has a NUL.
    """
    if value is None:
        return ""
    if len(value) > MAX_VALUE_BYTES:
        limit = f"a value of over {MAX_VALUE_BYTES // MEBIBYTE} MiB"
        raise DocumentError(DropReason.TOO_LONG, limit)
    return decode(value)


def _rows(
    file: BinaryIO, texts: Mapping[str, str], others: Mapping[str, str]
) -> Iterator[tuple[Any, ...]]:
    rows = 0
    try:
        table = pq.ParquetFile(file, buffer_size=_READ_AHEAD_BYTES, page_checksum_verification=True)
        wanted = {**texts, **others}
        find_columns(table.schema_arrow.names, wanted)
        for shown, name in texts.items():
            kind = table.schema_arrow.field(name).type
            if not _is_text(kind):
                detail = f"the column {shown} is of type {_type_name(kind)}, not text"
                raise RejectedFileError(DropReason.COLUMN_IS_NOT_TEXT, detail)
        names = list(wanted.values())
        largest = _largest_page(file, names)
        batch_rows = max(1, min(_MAX_BATCH_ROWS, _BATCH_BYTES // max(1, largest)))
        batches = table.iter_batches(batch_rows, columns=names, use_threads=False)
        for batch in batches:
            rows += batch.num_rows
            yield from zip(*(_values(batch.column(name)) for name in names), strict=True)
        if rows != table.metadata.num_rows:
            detail = f"{rows} rows instead of {table.metadata.num_rows}"
            raise RejectedFileError(DropReason.CORRUPT_PARQUET, detail)
    except (pa.ArrowException, OSError, ValueError) as error:
        # A finding of damage is stored for these bytes forever. Arrow's errors of damage are also
        # OSErrors, but without an errno.
        if is_of_machine(error):
            raise
        # Arrow's message may contain column names and values.
        detail = f"damaged, or cut short: reading it stops after {rows} rows ({fault(error)})"
        raise RejectedFileError(DropReason.CORRUPT_PARQUET, detail) from None


def _largest_page(file: BinaryIO, columns: Collection[str]) -> int:
    """Return the unpacked bytes of the largest page; no value is longer.

    :raises RejectedFileError: it takes too much memory.
    :raises PageError: the file is damaged.
    """
    largest = largest_page(file, columns)
    if largest > MAX_PAGE_BYTES:
        detail = (
            f"a page of {largest / MEBIBYTE:,.0f} MiB; at most {MAX_PAGE_BYTES // MEBIBYTE} MiB "
            "are unpacked at once. Write it with smaller pages or shorter values"
        )
        raise RejectedFileError(DropReason.LARGE_PAGE, detail)
    return largest


def _values(column: Any) -> Iterator[Any]:
    """Yield text undecoded, so that a value that is no UTF-8 costs only its own row."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        column = column.cast(pa.large_binary())
        if (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_VALUE_BYTES:
            # One byte over the limit is enough to detect it.
            column = pc.binary_slice(column, 0, MAX_VALUE_BYTES + 1)
    return (value.as_py() for value in column)


def _is_text(kind: Any) -> bool:
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    # Some writers do not mark text as such, hence the binary types.
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return any(check(values) for check in checks)


def _type_name(kind: Any) -> str:
    """Return a type's name without its parts: the field names of a struct come from the file."""
    return re.split(r"[<\[(]", str(kind), maxsplit=1)[0]


@contextmanager
def _as_file(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Yield the uncompressed content as a file of this machine."""
    try:
        stream.fileno()
        is_parquet = stream.read(len(_MAGIC)) == _MAGIC
        stream.seek(0)
    except (AttributeError, OSError):
        is_parquet = False
    if is_parquet:
        yield stream
        return
    with tempfile.TemporaryFile(prefix="parquet-") as copy:
        for block in read_blocks(stream):
            copy.write(block)
        copy.seek(0)
        yield cast("BinaryIO", copy)
