"""Compressed streams as blocks of bytes: recognized by content, verified to their end.

The standard library's file objects are not used: those for bzip2 and xz take a damaged second
stream for padding and end without an error, as Zstandard's does when a frame is cut short.
"""

from __future__ import annotations

import bz2
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from corpus.text.drops import DropReason, RejectedFileError

BLOCK_BYTES = 1 << 20
# A Zstandard decompressor returns all its output at once, at most 128 KiB for each 4 bytes.
_ZSTANDARD_BYTES = 512
CODEC_BYTES = 10
"""How many bytes of a stream :func:`find_codec` needs."""
_BZ2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")


class Codec(NamedTuple):
    """A kind of compression: how it begins, and how a block of one stream of it is unpacked."""

    name: str
    truncated: DropReason
    corrupt: DropReason
    begins: Callable[[bytes], bool]
    decompressor: Callable[[], Any]
    unpack: Callable[[Any, bytes], Iterator[bytes]]


def read_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield a stream's content, unpacked if it is compressed, in blocks of about a mebibyte.

    Several compressed streams one after the other are fine.

    :raises RejectedFileError: compressed data is cut short or damaged; the offset is the number of
        bytes that were unpacked.
    """
    blocks = gather(iter(partial(stream.read, BLOCK_BYTES), b""), CODEC_BYTES)
    head = next(blocks, b"")
    blocks = itertools.chain([head], blocks)
    codec = find_codec(head)
    return blocks if codec is None else _unpacked(blocks, codec)


def find_codec(head: bytes) -> Codec | None:
    """Return the compression of data that begins like this, or None."""
    return next((codec for codec in _CODECS if codec.begins(head)), None)


def gather(blocks: Iterator[bytes], least: int) -> Iterator[bytes]:
    """Join the first blocks until they have ``least`` bytes; sources return blocks of any size."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= least:
            break
    if head:
        yield head
        yield from blocks


def _unpacked(packed: Iterator[bytes], codec: Codec) -> Iterator[bytes]:
    offset = 0
    left = next(packed)
    while left:
        decompressor = codec.decompressor()
        while not decompressor.eof:
            left = left or next(packed, b"")
            if not left:
                detail = f"the {codec.name} data ends before its end mark"
                raise RejectedFileError(codec.truncated, detail, offset)
            packed_block, left = left, b""
            try:
                for block in codec.unpack(decompressor, packed_block):
                    offset += len(block)
                    yield block
            except (OSError, zlib.error, lzma.LZMAError) as error:
                raise RejectedFileError(codec.corrupt, str(error), offset) from error
        left = decompressor.unused_data
        # Some writers pad with zeros.
        while not (left := left.lstrip(b"\0")) and (left := next(packed, b"")):
            pass


def _unpack_zlib(decompressor: Any, data: bytes) -> Iterator[bytes]:
    yield decompressor.decompress(data, BLOCK_BYTES)
    # At the end of the stream the tail keeps its value, though it is unused data by then.
    while decompressor.unconsumed_tail and not decompressor.eof:
        yield decompressor.decompress(decompressor.unconsumed_tail, BLOCK_BYTES)


def _unpack_bounded(decompressor: Any, data: bytes) -> Iterator[bytes]:
    yield decompressor.decompress(data, BLOCK_BYTES)
    while not (decompressor.eof or decompressor.needs_input):
        yield decompressor.decompress(b"", BLOCK_BYTES)


class _Zstandard:
    """A decompressor of one frame, which is fed in small pieces to bound the output of a call."""

    def __init__(self) -> None:
        # Imported here because it is not installed everywhere, and most files do not need it.
        import zstandard

        self._error = zstandard.ZstdError
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        """Whether the frame is at its end."""
        return bool(self._frame.eof)

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of some bytes of the frame.

        :raises OSError: they are damaged.
        """
        for begin in range(0, len(data), _ZSTANDARD_BYTES):
            try:
                yield self._frame.decompress(data[begin : begin + _ZSTANDARD_BYTES])
            except self._error as error:
                raise OSError(str(error)) from error
            if self.eof:
                self.unused_data = self._frame.unused_data + data[begin + _ZSTANDARD_BYTES :]
                break


def _begins_bz2(head: bytes) -> bool:
    known = head[:3] == b"BZh" and head[3:4].isdigit()
    return known and any(block.startswith(head[4:10]) for block in _BZ2_BLOCKS)


def _begins_zstandard(head: bytes) -> bool:
    skippable = head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50
    return skippable or head.startswith(b"\x28\xb5\x2f\xfd")


_CODECS = (
    Codec(
        "gzip",
        DropReason.TRUNCATED_GZIP,
        DropReason.CORRUPT_GZIP,
        lambda head: head.startswith(b"\x1f\x8b"),
        partial(zlib.decompressobj, 16 + zlib.MAX_WBITS),
        _unpack_zlib,
    ),
    Codec(
        "bzip2",
        DropReason.TRUNCATED_BZ2,
        DropReason.CORRUPT_BZ2,
        _begins_bz2,
        bz2.BZ2Decompressor,
        _unpack_bounded,
    ),
    Codec(
        "Zstandard",
        DropReason.TRUNCATED_ZSTD,
        DropReason.CORRUPT_ZSTD,
        _begins_zstandard,
        _Zstandard,
        _Zstandard.unpack,
    ),
    Codec(
        "xz",
        DropReason.TRUNCATED_XZ,
        DropReason.CORRUPT_XZ,
        lambda head: head.startswith(b"\xfd7zXZ\x00"),
        partial(lzma.LZMADecompressor, lzma.FORMAT_XZ),
        _unpack_bounded,
    ),
)
