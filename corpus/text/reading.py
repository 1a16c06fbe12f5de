"""Reads text files as blocks or lines of bytes, and detects binary files and endless lines."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from corpus.text.compression import BLOCK_BYTES, find_codec, gather, read_blocks
from corpus.text.drops import DropReason, RejectedFileError

MAX_LINE_BYTES = 16 << 20
MEBIBYTE = 1 << 20
PARQUET = b"PAR1"
_HEAD_BYTES = 8192
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SIGNATURES = {
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "RAR",
    b"\x04\x22\x4d\x18": "LZ4",
    b"%PDF": "PDF",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"\xd0\xcf\x11\xe0": "old Office",
    b"Obj\x01": "Avro",
    b"ORC": "ORC",
    b"ARROW1": "Arrow",
    b"SQLite format 3\0": "SQLite",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# What text never contains: the control characters besides \a to \r and escape.
_CONTROL_BYTES = bytes([*range(7), *range(14, 27), *range(28, 32), 127])
_MAX_CONTROL_SHARE = 0.05


class Line(NamedTuple):
    """One line without its line end; ``data`` is None for a line over ``MAX_LINE_BYTES``.

    ``offset`` counts bytes of the uncompressed file from 0, ``number`` counts lines from 1.
    """

    data: bytes | None
    offset: int
    number: int


class HashingStream:
    """Passes a stream through and hashes what is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; none at the end."""
        data = self._stream.read(size)
        self._digest.update(data)
        return data

    def finish(self) -> str:
        """Read what is left; return the hex SHA-256 of the whole stream."""
        while self.read(BLOCK_BYTES):
            pass
        return self._digest.hexdigest()


class TextBlocks(NamedTuple):
    """An uncompressed text file after its byte order mark, if it has one.

    ``offset`` is where the first block begins. That block holds the first 8 KiB or all of the file.
    """

    offset: int
    blocks: Iterator[bytes]


def read_text(stream: BinaryIO) -> TextBlocks:
    """Return a plain or compressed text file in blocks.

    :raises RejectedFileError: it is binary; while the blocks are read: its compressed data is cut
        short or damaged.
    """
    blocks = gather(read_blocks(stream), _HEAD_BYTES)
    first = next(blocks, b"")
    refuse_binary(first[:_HEAD_BYTES])
    rest = first.removeprefix(_BYTE_ORDER_MARK)
    return TextBlocks(len(first) - len(rest), itertools.chain([rest], blocks))


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Yield the lines of a plain or compressed text file in constant memory.

    :raises RejectedFileError: it is binary, or its compressed data is cut short or damaged.
    """
    offset, blocks = read_text(stream)
    rest = b""
    dropped = 0  # bytes of the line that is being read, when it is too long already
    number = 0
    for block in blocks:
        pieces = (rest + block).split(b"\n")
        rest = pieces.pop()
        for data in pieces:
            size = dropped + len(data)
            number += 1
            yield _line(data, size, offset, number)
            offset += size + 1
            dropped = 0
        if dropped + len(rest) > MAX_LINE_BYTES:
            dropped, rest = dropped + len(rest), b""
    if dropped or rest:
        yield _line(rest, dropped + len(rest), offset, number + 1)


def _line(data: bytes, size: int, offset: int, number: int) -> Line:
    return Line(None if size > MAX_LINE_BYTES else data.rstrip(b"\r"), offset, number)


def refuse_binary(head: bytes) -> None:
    """Check that a file begins as text does.

    :raises RejectedFileError: it does not.
    """
    if head.startswith(PARQUET):
        raise RejectedFileError(
            DropReason.WRONG_FORMAT,
            "Parquet data, but it is read as text; end its name in .parquet or set input_format",
        )
    name = next((name for sign, name in _SIGNATURES.items() if head.startswith(sign)), None)
    codec = find_codec(head)
    if codec is not None:
        name = f"{codec.name} inside compressed"
    if name is not None:
        raise RejectedFileError(
            DropReason.BINARY_FILE,
            f"{name} data; give UTF-8 text, plain or compressed by gzip, bzip2, Zstandard or xz",
        )
    controls = len(head) - len(head.translate(None, _CONTROL_BYTES))
    if controls > _MAX_CONTROL_SHARE * len(head):
        raise RejectedFileError(
            DropReason.BINARY_FILE,
            f"{controls} of the first {len(head)} bytes are control characters; this is no text",
        )


class InputChangedError(RuntimeError):
    """An input file was written to while it was read; a retry may help."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{uri} changed while it was read. Put files into a partition whole: write them "
            "elsewhere, then move them."
        )


class MeteredStream(HashingStream):
    """Passes a stream through, hashes it and counts its bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self.bytes_read = 0

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; none at the end."""
        data = super().read(size)
        self.bytes_read += len(data)
        return data
