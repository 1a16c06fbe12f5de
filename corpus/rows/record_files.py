"""Writes TFRecord files with their offset index, and the dead-letter file next to them."""

from __future__ import annotations

import hashlib
import json
import struct
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np

from corpus.text.drops import Rejected
from corpus.tfrecords import masked_crcs
from pipeline_store.formats import FileDigest

_CHECKSUM_BYTES = 4


@cache
def _frame_head(size: int) -> bytes:
    """Return a record's length and the checksum of the length."""
    length = struct.pack("<Q", size)
    return length + masked_crcs([length]).astype("<u4").tobytes()


class LocalFile:
    """A file on this machine that knows its size and hash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._restart()

    def _restart(self) -> None:
        self.bytes = 0
        self._sha256 = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self._sha256.update(data)
        self.bytes += len(data)

    def clear(self) -> None:
        """Discard everything written so far."""
        self._file.seek(0)
        self._file.truncate()
        self._restart()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def digest(self, path: str) -> FileDigest:
        """Return the file's size and hash under the name it gets in a manifest."""
        return FileDigest(path=path, bytes=self.bytes, sha256=self._sha256.hexdigest())


class RecordWriter(LocalFile):
    """Writes a TFRecord file; :meth:`index` has the offset of every record, then the file's size.

    Use as a context manager.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._offsets = array("Q", [0])

    @property
    def records(self) -> int:
        """Number of records written."""
        return len(self._offsets) - 1

    def write_records(self, records: Sequence[bytes]) -> None:
        """Append serialized examples."""
        heads = [_frame_head(len(record)) for record in records]
        checksums = masked_crcs(records).astype("<u4").tobytes()
        tails = [checksums[at : at + _CHECKSUM_BYTES] for at in range(0, len(checksums), 4)]
        frames = list(map(b"".join, zip(heads, records, tails, strict=True)))
        ends = np.cumsum([len(frame) for frame in frames], dtype=np.uint64) + np.uint64(self.bytes)
        self._offsets.frombytes(ends.tobytes())
        self.write(b"".join(frames))

    def clear(self) -> None:
        """Discard everything written so far."""
        super().clear()
        self._offsets = array("Q", [0])

    def index(self) -> bytes:
        """Return the offset index: little-endian uint64, one more than there are records."""
        return np.array(self._offsets, "<u8").tobytes()


class DeadLetterWriter(LocalFile):
    """Writes one JSON object per line: ``file``, ``offset``, ``line``, ``reason``, ``detail``.

    ``offset`` and ``line`` say where in the uncompressed file the document begins. The text itself
    is left out, as dead letters are passed around more freely than corpora. Use as a context
    manager.
    """

    def __init__(self, path: Path, input_uri: str) -> None:
        super().__init__(path)
        self._input_uri = input_uri

    def add(self, rejected: Rejected) -> None:
        """Append one document."""
        letter = {
            "file": self._input_uri,
            "offset": rejected.offset,
            "line": rejected.line,
            "reason": str(rejected.reason),
            "detail": rejected.detail,
        }
        self.write((json.dumps(letter) + "\n").encode())
