"""Bytes of input files: in each format and compression, sound and damaged."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from hypothesis import strategies as st

from corpus.tfrecords import masked_crcs

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "xz": lzma.compress,
}
NAMES = {"gzip": "gzip", "bz2": "bzip2", "zstd": "Zstandard", "xz": "xz"}


def as_parquet(values: Sequence[object], column: str = "text") -> bytes:
    """Return a Parquet file of one column."""
    data = io.BytesIO()
    pq.write_table(pa.table({column: values}), data)
    return data.getvalue()


def as_csv(texts: list[str], delimiter: str = ",") -> bytes:
    """Return a table of numbers and texts; quotes and NULs in them make it a wrong one."""
    rows = [("id", "text"), *((str(n), f'"{text}"') for n, text in enumerate(texts))]
    return "".join(delimiter.join(row) + "\n" for row in rows).encode()


def as_records(contents: Sequence[bytes]) -> bytes:
    """Return a TFRecord file with these records."""
    frames = []
    for content in contents:
        length = len(content).to_bytes(8, "little")
        sums = [crc.tobytes() for crc in masked_crcs([length, content])]
        frames.append(length + sums[0] + content + sums[1])
    return b"".join(frames)


def any_bytes() -> st.SearchStrategy[bytes]:
    """Return a strategy for random bytes, parts of all formats, and files in them."""
    pieces = st.sampled_from(
        [b"\n\n", b"\n", b'"', b",", b"\t", b'{"text": "', b'"}', b"id,text\n", b"id\ttext\n", b"a",
         b"\xff", b"\xc3\xa9", b"\0", b"\\ud800", b"PAR1", b"\x1f\x8b", b" ", b"\xef\xbb\xbf"]
    )  # fmt: skip
    strings = st.lists(st.text(max_size=20), max_size=5)
    return st.one_of(
        st.binary(max_size=300),
        st.lists(pieces, max_size=30).map(b"".join),
        strings.map(lambda texts: "\n\n".join(texts).encode()),
        strings.map(lambda texts: "\n".join(json.dumps({"text": t}) for t in texts).encode()),
        strings.map(as_csv),
        strings.map(as_parquet),
        st.lists(st.binary(max_size=40), max_size=3).map(as_records),
    )


def wrapped(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy for data in one of the compressions or none, some of it damaged or cut."""
    packed = st.tuples(data, st.sampled_from([None, *COMPRESS])).map(_compressed)
    places = st.tuples(st.integers(0, 1000), st.integers(0, 256))
    return st.one_of(packed, st.tuples(packed, places).map(_damaged))


def _compressed(case: tuple[bytes, str | None]) -> bytes:
    data, kind = case
    return data if kind is None else COMPRESS[kind](data)


def _damaged(case: tuple[bytes, tuple[int, int]]) -> bytes:
    data, (place, byte) = case
    place %= len(data) + 1
    return data[:place] if byte == 256 else data[:place] + bytes([byte]) + data[place + 1 :]
