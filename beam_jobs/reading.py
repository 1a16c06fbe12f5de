"""Input files as lines of bytes: gzip by content, byte order mark, binary files, cut files."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, cast

from beam_jobs.drops import DropReason

MAX_LINE_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
_HEAD_BYTES = 8192
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_SIGNATURES = {
    b"BZh9": "bzip2",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"%PDF": "PDF",
    b"PAR1": "Parquet",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    _GZIP: "gzip inside gzip",
}
# What text never contains: the control characters besides \a to \r and escape.
_CONTROL_BYTES = bytes([*range(7), *range(14, 27), *range(28, 32), 127])
_MAX_CONTROL_SHARE = 0.05


class RejectedFileError(Exception):
    """Nothing of the file can be used."""

    def __init__(self, reason: DropReason, detail: str, offset: int = 0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.offset = offset


class Line(NamedTuple):
    """One line without its line end; ``data`` is None for a line over ``MAX_LINE_BYTES``.

    ``offset`` counts bytes of the uncompressed file from 0, ``number`` counts lines from 1.
    """

    data: bytes | None
    offset: int
    number: int


class HashingStream(io.RawIOBase):
    """Passes a stream through and hashes what is read."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read into a buffer; return the number of bytes."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._digest.update(data)
        return len(data)

    def finish(self) -> str:
        """Read what is left; return the hex SHA-256 of the whole stream."""
        while data := self._stream.read(_BUFFER_BYTES):
            self._digest.update(data)
        return self._digest.hexdigest()


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Yield the lines of a plain or gzip-compressed text file in constant memory.

    :raises RejectedFileError: it is binary, or its gzip data is cut short or damaged.
    """
    offset = 0
    try:
        for line in _lines(_unpacked(stream)):
            offset = line.offset
            yield line
    except EOFError as error:
        detail = "the gzip data ends before its end mark"
        raise RejectedFileError(DropReason.TRUNCATED_GZIP, detail, offset) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise RejectedFileError(DropReason.CORRUPT_GZIP, str(error), offset) from error


def _unpacked(stream: BinaryIO) -> io.BufferedReader:
    packed = io.BufferedReader(cast("Any", stream), _BUFFER_BYTES)
    if not packed.peek(len(_GZIP)).startswith(_GZIP):
        return packed
    unpacked = cast("Any", gzip.GzipFile(fileobj=packed))
    return io.BufferedReader(unpacked, _BUFFER_BYTES)


def _lines(text: io.BufferedReader) -> Iterator[Line]:
    _refuse_binary(text.peek(_HEAD_BYTES)[:_HEAD_BYTES])
    offset = number = 0
    while data := text.readline(MAX_LINE_BYTES):
        number += 1
        size = len(data)
        if size == MAX_LINE_BYTES and not data.endswith(b"\n"):
            size += _skip_line(text)
        if number == 1:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        too_long = size > MAX_LINE_BYTES
        yield Line(None if too_long else data.rstrip(b"\r\n"), offset, number)
        offset += size


def _skip_line(text: io.BufferedReader) -> int:
    skipped = 0
    while data := text.readline(_BUFFER_BYTES):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def _refuse_binary(head: bytes) -> None:
    for signature, name in _SIGNATURES.items():
        if head.startswith(signature):
            raise RejectedFileError(
                DropReason.BINARY_FILE, f"{name} data; give plain or gzip-compressed UTF-8 text"
            )
    controls = len(head) - len(head.translate(None, _CONTROL_BYTES))
    if controls > _MAX_CONTROL_SHARE * len(head):
        raise RejectedFileError(
            DropReason.BINARY_FILE,
            f"{controls} of the first {len(head)} bytes are control characters; this is no text",
        )
