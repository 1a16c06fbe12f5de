"""The framing of TFRecord files: a record's length, its content, and the checksums of both.

https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt

if google_crc32c.implementation != "c":
    raise ImportError(
        "google-crc32c is installed without its C library, which makes records 100 times slower to "
        "write; reinstall it from a wheel: pip install --force-reinstall google-crc32c"
    )

MAX_RECORD_BYTES = 16 << 20
_MASK_DELTA = np.uint32(0xA282EAD8)
_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")


class FramingError(ValueError):
    """The input is no TFRecord file, or a damaged one; ``offset`` is where this was found."""

    def __init__(self, detail: str, offset: int) -> None:
        super().__init__(detail)
        self.offset = offset


def masked_crcs(records: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """Return each record's CRC-32C, rotated and shifted as TFRecord files require."""
    crcs = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _MASK_DELTA


def frames(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the verified content of each record of a file.

    :param blocks: the file's bytes in order.
    :raises FramingError: a checksum is wrong, a record is over MAX_RECORD_BYTES, or the file ends
        within one.
    """
    buffer, offset = b"", 0
    for block in blocks:
        buffer += block
        begin = 0
        while (end := _end_of_frame(buffer, begin, offset)) is not None:
            yield offset + begin, buffer[begin + _HEAD.size : end - _FOOT.size]
            begin = end
        buffer, offset = buffer[begin:], offset + begin
    if buffer:
        raise FramingError("the file ends within a record", offset)


def _end_of_frame(buffer: bytes, begin: int, offset: int) -> int | None:
    """Return where a frame ends in the buffer; None if the rest of it is still to come."""
    if begin + _HEAD.size > len(buffer):
        return None
    size, checksum = _HEAD.unpack_from(buffer, begin)
    if masked_crcs([buffer[begin : begin + 8]])[0] != checksum:
        raise FramingError("no length of a record with its checksum", offset + begin)
    if size > MAX_RECORD_BYTES:
        limit = f"a record of over {MAX_RECORD_BYTES >> 20} MiB"
        raise FramingError(limit, offset + begin)
    end = begin + _HEAD.size + size + _FOOT.size
    if end > len(buffer):
        return None
    content = buffer[begin + _HEAD.size : end - _FOOT.size]
    if masked_crcs([content])[0] != _FOOT.unpack_from(buffer, end - _FOOT.size)[0]:
        raise FramingError("a record's checksum is wrong", offset + begin)
    return end
