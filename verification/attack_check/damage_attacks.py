"""Attacks by damage: Parquet files with bytes changed, truncated, duplicated or removed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.errors import JOB_ERRORS, reading
from corpus.text import parquet_documents
from corpus.text.drops import Rejected, RejectedFileError
from verification.attack_check.data_job import MOST_MEMORY, watched
from verification.attack_check.rows import Row, Tally

_TEXTS = [f"the bako {number} okabes every demu " * (1 + number % 7) for number in range(400)]
_REFUSED, _FAILED, _OTHER = 3, 4, 5

_WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"compression": "none"},
    {"compression": "zstd", "row_group_size": 50},
    {"compression": "gzip", "use_dictionary": False},
    {"data_page_version": "2.0", "data_page_size": 500},
    {
        "compression": "none",
        "use_dictionary": False,
        "column_encoding": {"text": "DELTA_BYTE_ARRAY"},
    },
)


def damaged_parquet(folder: Path, times: int) -> Tally:
    """Read damaged Parquet with checksums: it must be refused, or yield the written documents."""
    tally, draw = Tally(), random.Random(1)  # noqa: S311 - drawn by seed
    for number in range(times):
        path = folder / "x.parquet"
        way = _WAYS[number % len(_WAYS)]
        table = pa.table({"text": _TEXTS, "n": range(len(_TEXTS))})
        pq.write_table(table, path, write_page_checksum=True, **way)
        data, how = path.read_bytes(), draw.choice(_DAMAGES)
        path.write_bytes(how(bytearray(data), draw))
        ended = watched(partial(_read, path), folder / "told", cpu_seconds=10, memory=MOST_MEMORY)
        name = f"{number} ({how.__name__}, {way})"
        if ended.over or ended.exit_code not in (0, _REFUSED, _FAILED):
            tally.add(f"{name}: {ended.over or ended.exit_code}: {ended.said[-300:]}")
        else:
            tally.add()
    return tally


def _read(path: Path) -> int:
    try:
        with reading(str(path)), path.open("rb") as file:
            found = list(parquet_documents.parquet_documents(file, "text"))
    except RejectedFileError:
        return _REFUSED
    except JOB_ERRORS as error:
        print(error, file=sys.stderr)
        return _FAILED
    texts = [text for text in found if not isinstance(text, Rejected)]
    is_what_was_written = set(texts) <= set(_TEXTS) and len(found) == len(_TEXTS)
    if not is_what_was_written:
        print("other documents than were written", file=sys.stderr)
    return 0 if is_what_was_written else _OTHER


def _bits(data: bytearray, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 8)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _bits_of_the_directory(data: bytearray, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 4)):
        data[-draw.randint(1, min(900, len(data)))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _others(data: bytearray, draw: random.Random) -> bytes:
    begin, count = draw.randrange(len(data)), draw.randint(1, 64)
    data[begin : begin + count] = draw.randbytes(len(data[begin : begin + count]))
    return bytes(data)


def _less(data: bytearray, draw: random.Random) -> bytes:
    begin = draw.randrange(len(data))
    del data[begin : begin + draw.randint(1, 200)]
    return bytes(data)


def _twice(data: bytearray, draw: random.Random) -> bytes:
    begin, count = draw.randrange(len(data)), draw.randint(1, 200)
    data[begin:begin] = data[begin : begin + count]
    return bytes(data)


def _cut(data: bytearray, draw: random.Random) -> bytes:
    return bytes(data[: draw.randrange(len(data))])


_DAMAGES: tuple[Callable[[bytearray, random.Random], bytes], ...] = (
    _bits,
    _bits_of_the_directory,
    _others,
    _less,
    _twice,
    _cut,
)


def _without_checksums() -> AbstractContextManager[Any]:
    """Ignore the checksums of pages."""
    real = pq.ParquetFile

    def opened(*arguments: Any, page_checksum_verification: bool, **options: Any) -> Any:
        return real(*arguments, **options)

    return mock.patch.object(parquet_documents.pq, "ParquetFile", opened)


ROWS = (Row("Parquet of damaged bytes", damaged_parquet, 400, _without_checksums, 60),)
