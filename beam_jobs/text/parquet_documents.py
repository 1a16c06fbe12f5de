"""Documents of Parquet files: one column, a document a row."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.text.compression import read_blocks
from beam_jobs.text.decoding import DocumentError, decode
from beam_jobs.text.drops import DropReason, Rejected, RejectedFileError
from beam_jobs.text.reading import MAX_LINE_BYTES, MEBIBYTE
from beam_jobs.text.tables import find_column

MAX_VALUE_BYTES = MAX_LINE_BYTES
_MAGIC = b"PAR1"
_BATCH_BYTES = 4 << 20
_MAX_BATCH_ROWS = 1024
_READ_AHEAD_BYTES = 1 << 20


def parquet_documents(stream: BinaryIO, text_column: str) -> Iterator[str | Rejected]:
    """Yield the documents of a Parquet file in order; a null is an empty one.

    A Parquet file is read from its end, so a stream that is not a file of this machine is first
    copied to a temporary one. The offset of what is rejected is the number of its row, from 0.

    :raises RejectedFileError: it is no Parquet file or damaged, has no such column, or the column
        holds no text.
    """
    with _as_file(stream) as file:
        head = file.read(len(_MAGIC))
        if head and head != _MAGIC:
            raise RejectedFileError(
                DropReason.WRONG_FORMAT,
                f"no Parquet file, for it begins with {head!r}; give it another name or set "
                "corpus.input_format",
            )
        values = _values(file, text_column) if head else iter(())
        for row, value in enumerate(values):
            yield _document(value, row)


def _document(value: bytes | None, row: int) -> str | Rejected:
    if value is None:
        return ""
    if len(value) > MAX_VALUE_BYTES:
        limit = f"a value of over {MAX_VALUE_BYTES // MEBIBYTE} MiB"
        return Rejected(DropReason.TOO_LONG, limit, row, 0)
    try:
        return decode(value)
    except DocumentError as error:
        return Rejected(error.reason, error.detail, row, 0)


def _values(file: BinaryIO, name: str) -> Iterator[bytes | None]:
    try:
        table = pq.ParquetFile(file, buffer_size=_READ_AHEAD_BYTES, page_checksum_verification=True)
        find_column(table.schema_arrow.names, name)
        _refuse_other_than_text(table.schema_arrow.field(name).type, name)
        rows = 0
        batches = table.iter_batches(_batch_rows(table.metadata), columns=[name], use_threads=False)
        for batch in batches:
            rows += batch.num_rows
            yield from _bytes(batch.column(0))
        if rows != table.metadata.num_rows:
            raise pa.ArrowInvalid(f"{rows} rows instead of {table.metadata.num_rows}")
    except (pa.ArrowException, OSError, ValueError) as error:
        detail = " ".join(str(error).split())
        raise RejectedFileError(DropReason.CORRUPT_PARQUET, detail) from error


def _bytes(column: Any) -> list[bytes | None]:
    """Return values undecoded, so that one that is no UTF-8 costs only its own row."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return cast("list[bytes | None]", column.cast(pa.large_binary()).to_pylist())


def _refuse_other_than_text(kind: Any, name: str) -> None:
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
    if not any(check(values) for check in checks):
        detail = f"column {name!r} (corpus.text_field) is of type {kind}, not text"
        raise RejectedFileError(DropReason.COLUMN_IS_NOT_TEXT, detail)


def _batch_rows(metadata: Any) -> int:
    """Return how many rows to read at once, so that they take a few megabytes.

    All columns are counted: with a damaged directory, Arrow 25 ends the process when asked for one.
    """
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    mean = sum(group.total_byte_size for group in groups) / max(1, metadata.num_rows)
    return max(1, min(_MAX_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, mean))))


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
