"""The texts of a file, example by example. What cannot be used keeps its place, with the reason.

Files are read as the data job reads a task's (docs/finetuning-data.md), but for one thing: there,
what cannot be used is left out.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from pipeline_config.task import TaskConfig
from trained_models.errors import BadDataError, UserError
from trained_models.importing.sources import local_files, split

FORMATS = ("tsv", "csv", "jsonl", "parquet")
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_FIELD = 16 << 20
_ROWS_AT_ONCE = 1024
# The module's own limit is 128 KiB.
csv.field_size_limit(_LONGEST_FIELD)


class TextRow(NamedTuple):
    """An example: where it begins (lines, of Parquet rows, from 1), and its texts.

    ``error`` says why there are none, and is empty otherwise.
    """

    line: int
    texts: tuple[str, ...]
    error: str = ""


def read_texts(uri: str, task: TaskConfig) -> Iterator[TextRow]:
    """Yield the examples of a plain or compressed file in order; lines without anything are none.

    :param task: says which columns are the texts, and may say the format.
    :raises FileNotFoundError: there is no such file.
    :raises UserError: nothing says its format, or it has no such column.
    :raises BadDataError: it is damaged, or a quote in it is never closed.
    """
    names = [task.text_column]
    if task.text_pair_column is not None:
        names.append(task.text_pair_column)
    folder, name = split(uri)
    read = _READERS[_format(name, uri, task)]
    with local_files(folder, [name]) as local, _readable(uri):
        for row in read(local / name, uri, task, names):
            yield row if row.error else _usable(row, names)


def _format(name: str, uri: str, task: TaskConfig) -> str:
    if task.input_format != "auto":
        return task.input_format
    stem, _, end = name.lower().rpartition(".")
    if f".{end}" in _OPENERS:
        end = stem.rpartition(".")[2]
    if end in FORMATS:
        return end
    raise UserError(
        f"{uri} ends in none of .{', .'.join(FORMATS)} (also before {', '.join(_OPENERS)}), so its "
        "format is not known; rename it."
    )


def _usable(row: TextRow, names: Sequence[str]) -> TextRow:
    for name, text in zip(names, row.texts, strict=True):
        problem = _problem(text)
        if problem:
            return TextRow(row.line, (), f"{name!r} {problem}")
    return row


def _problem(text: str) -> str:
    if "\0" in text:
        return "has a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    # Letters, digits, punctuation and signs; what else there is becomes no token.
    if not any(unicodedata.category(sign)[0] in "LNPS" for sign in text):
        return "has no text"
    return ""


def _zstandard(path: Path) -> BinaryIO:
    # Takes a second to import, and most files are something else.
    import pyarrow as pa

    return cast(BinaryIO, pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))


def _gzip(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path))


def _bzip2(path: Path) -> BinaryIO:
    return cast(BinaryIO, bz2.open(path))


def _xz(path: Path) -> BinaryIO:
    return cast(BinaryIO, lzma.open(path))


_OPENERS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": _gzip,
    ".bz2": _bzip2,
    ".xz": _xz,
    ".zst": _zstandard,
}


@contextmanager
def _readable(uri: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise BadDataError(
            f"{uri} cannot be read to its end: {error}. It is damaged or was not copied completely."
        ) from error


def _lines(path: Path) -> Iterator[str]:
    """Yield lines, ended by a line feed; bytes that are not UTF-8 are surrogates."""
    with _OPENERS.get(path.suffix.lower(), lambda plain: plain.open("rb"))(path) as file:
        for number, data in enumerate(_raw_lines(file)):
            line = data if number else data.removeprefix(_BYTE_ORDER_MARK)
            yield line.rstrip(b"\r\n").decode(errors="surrogateescape") + "\n"


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while block := file.read(1 << 20):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _table(path: Path, uri: str, task: TaskConfig, names: Sequence[str]) -> Iterator[TextRow]:
    quoting: Any = (
        {"quotechar": task.quotechar}
        if task.quotechar
        else {"quoting": csv.QUOTE_NONE, "quotechar": None}
    )
    delimiter = _DELIMITERS[_format(path.name, uri, task)]
    rows = _Records(csv.reader(_lines(path), delimiter=delimiter, strict=True, **quoting), uri)
    columns = task.columns or next((row.fields for row in rows), [])
    if not columns:
        return
    places = _places(columns, names, uri)
    for row in rows:
        if row.error:
            yield TextRow(row.line, (), row.error)
        elif len(row.fields) != len(columns):
            yield TextRow(row.line, (), f"{len(row.fields)} columns instead of {len(columns)}")
        else:
            yield TextRow(row.line, tuple(row.fields[place] for place in places))


class _Record(NamedTuple):
    line: int
    fields: list[str]
    error: str = ""


class _Records(Iterator[_Record]):
    """The records of a table that are not blank, and where each begins."""

    def __init__(self, rows: Any, uri: str) -> None:
        self._rows = rows
        self._uri = uri

    def __next__(self) -> _Record:
        while True:
            line = self._rows.line_num + 1
            try:
                fields = next(self._rows)
            except csv.Error as error:
                if "unexpected end of data" in str(error):
                    raise BadDataError(
                        f"{self._uri}: a quote that is open in the record of line {line} is never "
                        "closed, so nothing after it can be told apart. Correct it, or set "
                        "quotechar in task.toml."
                    ) from error
                return _Record(line, [], f"no record: {error}")
            if fields:
                return _Record(line, fields)


def _places(columns: Sequence[str], names: Sequence[str], uri: str) -> list[int]:
    for name in names:
        count = list(columns).count(name)
        if count != 1:
            raise UserError(
                f"{uri} has {f'{count} times the' if count else 'no'} column {name!r}, which the "
                f"task's texts are in; its columns are {', '.join(map(repr, columns[:10]))}."
            )
    return [list(columns).index(name) for name in names]


def _objects(path: Path, uri: str, task: TaskConfig, names: Sequence[str]) -> Iterator[TextRow]:
    for number, line in enumerate(_lines(path), 1):
        if line.isspace():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield TextRow(number, (), f"no JSON: {error}")
            continue
        values = [found.get(name, _ABSENT) for name in names] if isinstance(found, dict) else []
        yield _of_values(number, values, names)


_ABSENT = object()


def _of_values(line: int, values: Sequence[Any], names: Sequence[str]) -> TextRow:
    if not values:
        return TextRow(line, (), "no object")
    for name, value in zip(names, values, strict=True):
        if value is _ABSENT:
            return TextRow(line, (), f"no field {name!r}")
        if value is not None and not isinstance(value, str):
            return TextRow(line, (), f"{name!r} is of type {type(value).__name__}")
    return TextRow(line, tuple(value or "" for value in values))


def _parquet(path: Path, uri: str, task: TaskConfig, names: Sequence[str]) -> Iterator[TextRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as table:
            _places(table.schema_arrow.names, names, uri)
            rows = (
                values
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=list(names))
                for values in zip(*(_texts(batch.column(name)) for name in names), strict=True)
            )
            for number, values in enumerate(rows, 1):
                yield _of_values(number, values, names)
    except pa.ArrowException as error:
        raise BadDataError(f"{uri} cannot be read as Parquet: {error}.") from error


def _texts(column: Any) -> Iterator[Any]:
    # Some writers do not mark text as such.
    for value in column.to_pylist():
        yield value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


_READERS: dict[str, Callable[[Path, str, TaskConfig, Sequence[str]], Iterator[TextRow]]] = {
    "tsv": _table,
    "csv": _table,
    "jsonl": _objects,
    "parquet": _parquet,
}
