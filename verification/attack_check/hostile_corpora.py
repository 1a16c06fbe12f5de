"""Partitions whose text breaks the data job, by malice or by bad luck."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

TAGS = ("<img src=x", "<svg onload", "<script>alert")
"""Markup that must be escaped in a partition's report page."""
SECRET = "s3cr3t-w0rd"  # noqa: S105 - none
"""Content of a file that no message may quote."""

_SENTENCE = "the bako okabes every demu that umedes."
_PARAGRAPH = f"{_SENTENCE} ".encode()
_MEBIBYTE = 1 << 20
_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
_PAIRS = {"masking.packing": "segment_pair"}


class Corpus(NamedTuple):
    """A hostile partition.

    :ivar make: writes it into a folder.
    :ivar refused: text that the error must contain, if the whole partition must be refused; empty:
        it must be used.
    """

    name: str
    make: Callable[[Path], object]
    settings: Mapping[str, Any] = _NO_SETTINGS
    refused: str = ""


def _file(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _named(*names: str | bytes) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        for number, name in enumerate(names):
            path = os.path.join(os.fsencode(folder), os.fsencode(name))
            with open(path, "wb") as file:
                file.write(b"%s number %d\n" % (_PARAGRAPH, number))

    return make


def _link(name: str, target: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to(target)


def _objects(*lines: Any) -> Callable[[Path], object]:
    data = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return _file("x.jsonl", b"\n".join(data) + b"\n")


def _table(columns: Mapping[str, Any], **options: Any) -> Callable[[Path], object]:
    return lambda folder: pq.write_table(pa.table(dict(columns)), folder / "x.parquet", **options)


def _cut_table(folder: Path) -> None:
    _table({"text": [_SENTENCE] * 1000})(folder)
    path = folder / "x.parquet"
    path.write_bytes(path.read_bytes()[:-200])


def bomb_of_a_dictionary(value_bytes: int, rows: int) -> Callable[[Path], object]:
    """Return a function that writes a small file which encodes the same long value many times."""

    def make(folder: Path) -> None:
        value = _SENTENCE * (value_bytes // len(_SENTENCE))
        texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))
        table = pa.table({"text": texts})
        pq.write_table(table, folder / "x.parquet", row_group_size=rows, store_schema=False)

    return make


def _few_long_texts(folder: Path) -> None:
    """Write 1500 rows with five different texts of 200 kB as an ordinary program does."""
    texts = [f"{'word ' * 40_000}{number % 5}" for number in range(1500)]
    pq.write_table(pa.table({"text": texts}), folder / "x.parquet")


def _one_long_value(folder: Path) -> None:
    """Write a page without a dictionary that compression makes small."""
    table = pa.table({"text": ["a " * (200 * _MEBIBYTE), _SENTENCE]})
    pq.write_table(table, folder / "x.parquet", compression="zstd", use_dictionary=False)


def _bomb(suffix: str, unit: bytes, mebibytes: int) -> Callable[[Path], object]:
    """Return a function that writes much repeated content, compressed as concatenated members."""
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gz": lambda data: gzip.compress(data, 1),
        "bz2": bz2.compress,
        "xz": lambda data: lzma.compress(data, preset=0),
        "zst": zstandard.ZstdCompressor().compress,
    }
    count = min(mebibytes, 16)

    def make(folder: Path) -> None:
        block = unit * (count * _MEBIBYTE // len(unit))
        (folder / f"x.txt.{suffix}").write_bytes(pack[suffix](block) * (mebibytes // count))

    return make


def _documents(count: int) -> bytes:
    return b"\n\n".join(b"%s number %d" % (_PARAGRAPH * 4, number) for number in range(count))


def _of_chance(count: int, size: int) -> bytes:
    draw = random.Random(1)  # noqa: S311 - drawn by seed
    return b"\n\n".join(bytes(draw.choices(range(33, 127), k=size)) for _ in range(count))


def _a_socket(folder: Path) -> None:
    # A socket's address may have 107 bytes, fewer than the folder's path may have.
    here = os.getcwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("x.txt")
    finally:
        os.chdir(here)


_GOOD_GZIP = gzip.compress(_documents(300))
_MARKS = "\u0301\u0323"

DOCUMENTS = (
    Corpus("marks in another order", _file("x.txt", f"a{_MARKS * 700_000}".encode())),
    Corpus("marks, as many as a document holds", _file("x.txt", f"a{_MARKS * 4_000_000}".encode())),
    Corpus("equal marks", _file("x.txt", ("a" + "\u0301" * 4_000_000).encode())),
    Corpus("one word", _file("x.txt", b"a" * (12 * _MEBIBYTE))),
    Corpus("words of marks", _file("x.txt", ("a\u0301\u0323 " * 1_000_000).encode())),
    Corpus(
        "ligatures of 18 letters",
        _file("x.txt", ("\ufdfa" * 1_000_000).encode()),
        {"corpus.unicode_normalization": "NFKC"},
    ),
    Corpus("ends of sentences", _file("x.txt", b". " * 1_000_000), _PAIRS),
    Corpus("quotes", _file("x.txt", b".\"')" * 1_000_000), _PAIRS),
    Corpus("open brackets", _file("x.txt", b"(" * 2_000_000), _PAIRS),
    Corpus("abbreviations", _file("x.txt", b"Mr. Dr. U.S. " * 300_000), _PAIRS),
    Corpus(
        "right to left", _file("x.txt", ("\u200b\u202e\u2066the\u200d bako " * 100_000).encode())
    ),
    Corpus("spaces", _file("x.txt", "\u3000\xa0 \t".encode() * 1_500_000)),
    Corpus("ideographs", _file("x.txt", "\u4e00".encode() * 5_000_000)),
    Corpus("marks of punctuation", _file("x.txt", b"!" * (12 * _MEBIBYTE))),
)
"""Single documents of an allowed size, each a worst case for some part of the job."""

BOMBS = (
    Corpus("Parquet, 2 MB x 600", bomb_of_a_dictionary(2 * _MEBIBYTE, 600)),
    Corpus("Parquet, 8 MB x 150", bomb_of_a_dictionary(8 * _MEBIBYTE, 150)),
    Corpus("Parquet, five texts in 1500 rows", _few_long_texts),
    Corpus("Parquet, a text of 60 MB in 64 rows", bomb_of_a_dictionary(60 * _MEBIBYTE, 64)),
    Corpus("Parquet, a value of 400 MB", _one_long_value),
    Corpus("Parquet, a value of 60 MB", _table({"text": ["a " * (30 * _MEBIBYTE), _SENTENCE]})),
    *(
        Corpus(f"{suffix} of {what}", _bomb(suffix, unit, size))
        for suffix, size in (("gz", 256), ("zst", 512), ("xz", 256), ("bz2", 64))
        for what, unit in (("zeros", b"\0"), ("one line", b"word "), ("blank lines", b"\n"))
        if size > 64 or what == "one line"
    ),
    Corpus("gz of documents", _bomb("gz", _PARAGRAPH + b"\n\n", 32)),
)
"""Small files that become large when decoded."""

ENDLESS = (
    Corpus("pipe", lambda folder: os.mkfifo(folder / "x.txt"), refused="x.txt is a pipe"),
    Corpus("pages of memory", _link("x.txt", "/proc/self/pagemap"), refused="x.txt is a file of"),
    Corpus("zeros", _link("x.txt", "/dev/zero"), refused="x.txt is a pipe, socket or device"),
    Corpus("chance", _link("x.txt", "/dev/urandom"), refused="x.txt is a pipe, socket or device"),
    Corpus("memory", _link("x.txt", "/proc/self/mem"), refused="x.txt is a file of the operating"),
    Corpus("environment", _link("x.txt", "/proc/self/environ"), refused="x.txt is a file of"),
    Corpus("socket", _a_socket, refused="x.txt is a pipe, socket or device"),
    Corpus("loop of links", _link("x.txt", "x.txt"), refused="x.txt is a link that leads nowhere"),
    Corpus("lost link", _link("x.txt", "/nonexistent"), refused="x.txt is a link that leads"),
    Corpus("name in Latin 1", _named(b"ros\xe9.txt"), refused=r"ros\udce9.txt is no UTF-8"),
    Corpus("name of bytes", _named(b"\xff\xfe\x80.txt"), refused=r"\udcff\udcfe\udc80.txt is no"),
)
"""Entries among the files that are not files, or have no end or no valid name."""

OTHERS = (
    Corpus(
        "names with tags",
        _named(
            "<img src=x onerror=alert(1)>.txt",
            '"><svg onload=alert(1)>.txt',
            "<script>alert(1).txt",
        ),
    ),
    Corpus(
        "names of shells",
        _named(
            "$(touch x).txt",
            ";touch x;.txt",
            "-rf.txt",
            "`id`.txt",
            "a b.txt",
            "*.txt",
            "[x].txt",
            "a,b.txt",
            "%2e%2e.txt",
        ),
    ),
    Corpus(
        "names of places", _named("{partition}.txt", "..txt", "...txt", "~.txt", "_SUCCESS.txt")
    ),
    Corpus(
        "names with newlines", _named("a\nb.txt", "c\td.txt", "e\x1b[31m.txt", "\u202etxt.exe.txt")
    ),
    Corpus("long name", _named("x" * 250 + ".txt")),
    Corpus("folder of a file's name", lambda folder: (folder / "x.txt").mkdir()),
    Corpus("link to a file", _link("x.txt", __file__)),
    Corpus("gz in gz", _file("x.txt.gz", gzip.compress(_GOOD_GZIP))),
    Corpus("gz, cut short", _file("x.txt.gz", _GOOD_GZIP[:-50])),
    Corpus("gz, something behind it", _file("x.txt.gz", _GOOD_GZIP + b"GARBAGE" * 10)),
    Corpus("gz, wrong checksum", _file("x.txt.gz", _GOOD_GZIP[:-8] + b"\0" * 8)),
    Corpus("gz that is named text", _file("x.txt", _GOOD_GZIP)),
    Corpus("xz, cut short", _file("x.txt.xz", lzma.compress(_documents(300))[:-30])),
    Corpus("bz2, damaged", _file("x.txt.bz2", bz2.compress(_documents(300))[:200] + b"\0" * 99)),
    Corpus(
        "zst that claims 4 GB", _file("x.txt.zst", b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + b"x" * 999)
    ),
    Corpus(
        "special tokens",
        _file("x.txt", b"\n\n".join(b"[MASK] [SEP] [CLS] [PAD] bako %d" % n for n in range(300))),
    ),
    Corpus("padding", _file("x.txt", b"\n\n".join(b"[PAD] " * 50 + b"%d" % n for n in range(300)))),
    Corpus(
        "languages of chance",
        _file("x.txt", _of_chance(500, 300)),
        {"corpus.keep_languages": ["en"]},
    ),
    Corpus(
        "copies but for a number", _file("x.txt", _documents(3000)), {"corpus.duplicates": "near"}
    ),
    Corpus(
        "deep lists",
        _objects(
            {"text": _SENTENCE}, b'{"text": "x", "a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
        ),
    ),
    Corpus(
        "deep objects",
        _objects(b'{"text": "y", "a": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"),
    ),
    Corpus(
        "number of a million digits",
        _objects({"text": _SENTENCE}, b'{"text": "a b", "id": ' + b"9" * 1_000_000 + b"}"),
    ),
    Corpus(
        "numbers that are none", _objects(b'{"text": "a b", "x": NaN, "y": Infinity, "z": 1e999}')
    ),
    Corpus(
        "half surrogates",
        _objects(b'{"text": "a \\ud800 b"}', b'{"text\\udfff": 1, "text": "fine"}'),
    ),
    Corpus("NUL in JSON", _objects(b'{"text": "a\\u0000b"}', b'{"text": "a\0b"}')),
    Corpus(
        "fields twice",
        _objects(b'{"text": "first", "text": "second"}', b'{"text": "x", "text": 5}'),
    ),
    Corpus(
        "other types",
        _objects(
            {"text": 5}, {"text": ["a"]}, {"text": {"a": 1}}, {"text": None}, [1], "s", 5, None, {}
        ),
    ),
    Corpus("tags as keys", _objects({f"{TAGS[0]} onerror=alert(1)>": "a"}, b'{"a\\nb": 1}')),
    Corpus(
        "byte order mark and CRLF",
        _file("x.jsonl", b'\xef\xbb\xbf{"text": "a b c"}\r\n{"text": "d e f"}\r\n'),
    ),
    Corpus("JSON in UTF-16", _file("x.jsonl", ('{"text": "a"}\n' * 100).encode("utf-16"))),
    Corpus(
        "JSON as a list", _file("x.jsonl", b"[\n" + b",\n".join([b'{"text": "a"}'] * 100) + b"\n]")
    ),
    Corpus("JSON that is cut", _file("x.jsonl", b'{"text": "a b c"}\n{"text": "d e')),
    Corpus(
        "formula and long field",
        _file("x.csv", b'text,n\n"=cmd|\'/c calc\'!A1",1\n"' + b"a " * (9 << 20) + b'",2\n'),
    ),
    Corpus("quote without end", _file("x.csv", b'text,n\n"abc,1\n' + b"x,1\n" * 100_000)),
    Corpus("NUL in CSV", _file("x.csv", b"text,n\na\0b,1\nok it is,2\n")),
    Corpus("lines that end in CR", _file("x.csv", b"text,n\ra,1\rb,2\r")),
    Corpus(
        "200,000 columns",
        _file(
            "x.csv",
            b"text,"
            + b",".join(b"c%d" % n for n in range(200_000))
            + b"\na"
            + b"," * 200_000
            + b"\n",
        ),
    ),
    Corpus("first line is a secret", _file("x.csv", f"{SECRET},more\nb,c\n".encode())),
    Corpus("column twice", _file("x.csv", b"text,text\na,b\n")),
    Corpus("quotes in TSV", _file("x.tsv", b'text\tn\nhe said "hi" there\t1\n"open\t2\nok\t3\n')),
    Corpus("column of numbers", _table({"text": [1, 2, 3]})),
    Corpus("column of lists", _table({"text": [["a"], ["b"]]})),
    Corpus("column of structs", _table({"text": [{SECRET: "a"}]})),
    Corpus("column of nothing", _table({"text": pa.nulls(5)})),
    Corpus("bytes that are no UTF-8", _table({"text": [b"\xff\xfe", b"good text"]})),
    Corpus("nulls", _table({"text": ["a b", None, ""]})),
    Corpus("no rows", _table({"text": pa.array([], pa.string())})),
    Corpus("no such column", _table({SECRET: ["a"]})),
    Corpus("5000 columns", _table({"text": ["a b c"], **{f"c{n}": [n] for n in range(5000)}})),
    Corpus("Parquet, cut short", _cut_table),
    Corpus(
        "Parquet that is named text",
        lambda folder: pq.write_table(pa.table({"text": ["a"]}), folder / "x.txt"),
    ),
    Corpus("text that is named Parquet", _file("x.parquet", _documents(30))),
    Corpus("empty file", _file("x.txt", b"")),
    Corpus("a newline", _file("x.txt", b"\n")),
    Corpus("UTF-16", _file("x.txt", ("hello world\n\n" * 500).encode("utf-16"))),
    Corpus("Latin 1", _file("x.txt", ("ros\xe9 au lait\n\n" * 500).encode("latin-1"))),
    Corpus(
        "control characters",
        _file("x.txt", b"\n\n".join([b"abc \x01 defghijklmnopqrstuvwxyz"] * 300)),
    ),
    Corpus(
        "colors of a terminal",
        _file(
            "x.txt", b"\n\n".join(b"\x1b[31mred\x1b]0;title\x07 text %d" % n for n in range(300))
        ),
    ),
    Corpus("rare ends of lines", _file("x.txt", "a\u2028b\u2029c\x0bd\x0ce\x85f\n\ng".encode())),
    Corpus(
        "hole in a set",
        _named("part-00000-of-00003.txt", "part-00002-of-00003.txt"),
        refused="part-00001-of-00003.txt",
    ),
    Corpus(
        "set without end",
        _named("part-0-of-999999999999.txt"),
        refused="files of a set are missing",
    ),
    Corpus("records that are none", _file("x.tfrecord", _documents(30))),
    Corpus("machine code", _file("x.txt", b"\x7fELF" + bytes(range(256)) * 100)),
    Corpus("blank lines", _file("x.txt", b"\n" * (32 * _MEBIBYTE))),
    Corpus(
        "no word of a vocabulary",
        _file("x.txt", "\n\n".join(chr(0x1F600 + n % 60) * 30 for n in range(300)).encode()),
    ),
)
"""Other cases: names, files with a wrong format, values of other types."""

CORPORA = (*BOMBS[:1], *DOCUMENTS[:1], *ENDLESS, *BOMBS[1:], *DOCUMENTS[1:], *OTHERS)
