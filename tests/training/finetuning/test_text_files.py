"""Files of texts to predict: every line has its place, and is read as the data job reads it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline_config import TaskConfig
from trained_models.errors import BadDataError, UserError
from training.finetuning.exporting.text_files import read_texts

PAIRS = TaskConfig(text_pair_column="second")
HEADER = b"text\tsecond\tlabel\n"
USABLE: dict[str, tuple[dict[int, tuple[str, str]], list[int]]] = {
    "tsv": (
        {2: ("Füße", "日本語"), 3: ('two\nlines, a "quote"', "b"), 14: ("last", "b")},
        [*range(6, 14)],
    ),
    "csv": (
        {2: ("Füße", "日本語"), 3: ('two\nlines a "quote"', "b"), 14: ("last", "b")},
        [*range(6, 14)],
    ),
    "jsonl": (
        {4: ("a", "b"), 8: ("Ü\u2028", "b\tc"), 12: ("last", "b")},
        [1, 3, 5, 6, 7, 9, 10, 11],
    ),
    "parquet": ({1: ("a", "b"), 4: ("Ü", "b")}, [2, 3, 5]),
}
"""By line, what the files below hold, and the lines of what cannot be used."""
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def bad_tsv() -> bytes:
    """Return a table with all that can be wrong with a line."""
    lines = [
        b"\xef\xbb\xbf" + HEADER.rstrip(b"\n") + b"\r\n",
        "Füße\t日本語\tx\r\n".encode(),
        b'"two\nlines, a ""quote"""\tb\tx\n',
        b"\n",
        b"too few\n",
        b"a\tb\tc\ttoo many\n",
        b"broken \xff\tb\tx\n",
        b"a\t\xe9t\xe9\tx\n",
        b" \tno first\tx\n",
        b"no second\t\t\n",
        b"nul \0\tb\tx\n",
        b'"bad" quote\tb\tx\n',
        b"last\tb\tx",
    ]
    return b"".join(lines)


def bad_jsonl() -> bytes:
    lines: list[Any] = [
        {"text": "a", "second": "b", "more": 1},
        {"text": "a"},
        {"text": 5, "second": "b"},
        {"text": None, "second": "b"},
        {"text": "Ü\u2028", "second": "b\tc"},
        {"text": "half \ud800", "second": "b"},
        ["a", "b"],
        7,
        {"text": "last", "second": "b"},
    ]
    good = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return b'{"text": "a", "second"\n\n' + b'{"text": "\xff", "second": "b"}\n' + good


def bad_parquet() -> bytes:
    table = pa.table(
        {
            "text": pa.array([b"a", None, b"\xff", "Ü".encode(), b""], pa.binary()),
            "second": ["b"] * 5,
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "compression"),
    [*((name, end) for name in ("tsv", "csv", "jsonl") for end in COMPRESSED), ("parquet", "")],
)
def test_files_are_read_as_the_data_job_reads_them(
    tmp_path: Path, name: str, compression: str
) -> None:
    content = {
        "tsv": bad_tsv(),
        "csv": bad_tsv().replace(b", ", b" ").replace(b"\t", b","),
        "jsonl": bad_jsonl(),
        "parquet": bad_parquet(),
    }[name]
    path = tmp_path / f"texts.{name}{compression}"
    path.write_bytes(COMPRESSED[compression](content))
    found = list(read_texts(str(path), PAIRS))
    usable, unusable = USABLE[name]
    assert {row.line: row.texts for row in found if not row.error} == usable
    assert [row.line for row in found if row.error] == unusable
    assert [row.line for row in found] == sorted({*usable, *unusable})
    assert all(not row.texts for row in found if row.error)


def test_damage_in_any_of_several_streams_is_found(tmp_path: Path) -> None:
    """Parallel compressors write several streams; bz2 and lzma take a damaged one for padding."""
    parts = [b"text\n" + b"".join(b"row %d\n" % row for row in range(200))]
    parts += [b"".join(b"row %d\n" % row for row in range(n, n + 200)) for n in (200, 400)]
    task = TaskConfig()
    for name, compress in (("bz2", bz2.compress), ("xz", lzma.compress)):
        first, second, third = map(compress, parts)
        path = tmp_path / f"texts.tsv.{name}"
        path.write_bytes(first + second + third)
        assert len(list(read_texts(str(path), task))) == 600
        for place in (0, 1, len(second) // 2, len(second) - 2):
            damaged = bytearray(second)
            damaged[place] ^= 0xFF
            path.write_bytes(first + bytes(damaged) + third)
            with pytest.raises(BadDataError, match="cannot be used"):
                list(read_texts(str(path), task))


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "texts.tsv"
    path.write_bytes(bad_tsv())
    errors = {row.line: row.error for row in read_texts(str(path), PAIRS) if row.error}
    assert errors == {
        6: "wrong_column_count: 1 columns; the header has 3",
        7: "wrong_column_count: 4 columns; the header has 3",
        8: "invalid_utf8: line 8: no UTF-8 after 7 bytes: invalid start byte",
        9: "invalid_utf8: line 9: no UTF-8 after 2 bytes: invalid continuation byte",
        10: "empty_text: no text in the column that text_column names",
        11: "empty_text: no text in the column that text_pair_column names",
        12: "nul_character: after 4 characters",
        13: "invalid_csv: '\\t' expected after '\"'",
    }


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("a.txt", b"text\n", UserError, "so its format is not known; rename it"),
        (
            "a.tsv",
            b"title\tsecond\nx\ty\n",
            UserError,
            "missing_column: no column that text_column names",
        ),
        ("a.tsv", b"text\ttext\tsecond\n", UserError, "2 times the column that text_column names"),
        ("a.csv", b'text,second\n"a,b\nc,d\n', BadDataError, "record of line 2 is not closed"),
        (
            "a.tsv.gz",
            gzip.compress(HEADER * 9, mtime=0)[:-9],
            BadDataError,
            "truncated_gzip",
        ),
        ("a.tsv.xz", lzma.compress(HEADER * 9)[:-9], BadDataError, "truncated_xz"),
        ("a.tsv.zst", zstandard.compress(HEADER * 9)[:-9], BadDataError, "truncated_zstd"),
        *[
            (f"a.tsv.{end}", content, BadDataError, f"corrupt_{kind}")
            for end, kind in {"gz": "gzip", "bz2": "bz2", "xz": "xz", "zst": "zstd"}.items()
            for content in (
                b"",
                b"BZ",
                b"text\tsecond\na\tb\n",
                b"\x1e" + gzip.compress(HEADER, mtime=0)[1:],
            )
        ],
        ("a.parquet", b"", BadDataError, "corrupt_parquet"),
        ("a.parquet", b"PAR1 no more", BadDataError, "corrupt_parquet"),
        ("a.parquet", None, FileNotFoundError, "a.parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, content: bytes | None, error: type[Exception], message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        list(read_texts(str(path), PAIRS))


def test_a_tasks_own_format_columns_and_quotes_hold_for_its_texts(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    path.write_text('"a\tb\tx\n5" c\td\ty\n')
    task = TaskConfig(
        input_format="tsv", columns=["first", "label", "second"], quotechar="", text_column="first",
        text_pair_column="second",
    )  # fmt: skip
    assert [row.texts for row in read_texts(str(path), task)] == [('"a', "x"), ('5" c', "y")]


def test_an_empty_file_has_no_examples(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.jsonl"):
        (tmp_path / name).write_bytes(b"")
        assert list(read_texts(str(tmp_path / name), PAIRS)) == []
