"""Random access to records: any record of many TFRecord files by its number, by one read each."""

from __future__ import annotations

import functools
import itertools
import os
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from pipeline_store.formats import FileDigest, FormatError, PhaseName
from trained_models import artifacts
from trained_models.errors import BadDataError
from trained_models.record_sources import RecordSource, RowFormat
from training.runtime.phases import each, phase

# TFRecord framing: length (8 bytes) and its checksum (4) before the data, a checksum (4) after it.
# Source: https://www.tensorflow.org/tutorials/load_data/tfrecord
HEADER_BYTES = 12
FOOTER_BYTES = 4
# Start and end of a record, in an offset index.
OFFSETS = struct.Struct("<QQ")
OFFSET_BYTES = 8
# Offsets of an index that are checked at a time: 8 MiB.
CHECKED_OFFSETS = 1 << 20
# Limit for all readers together: corpora have more shards than the 1,024 files that a process may
# have open by default, and a training reads new, replayed and held-out records.
OPEN_FILES = 512
_serials = itertools.count()


def default_cache() -> Path:
    """Return the folder for record files that have to be copied from a cloud store."""
    base = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return Path(base, "bert-repretraining", "records")


class RecordReader:
    """A list of the records of several files; record numbers run through all files in order.

    ``row_format`` is the format of every record. Neither records nor their offsets are kept in
    memory: each is read when it is needed, and the system caches what it has room for. Files are
    verified once, here. Files of a cloud store are copied to the local disk first, as a step needs
    many small reads.
    """

    def __init__(self, sources: list[RecordSource], cache: Path | None = None) -> None:
        """Open the files.

        :param sources: at least one, all of one row format.
        :raises FormatError: a file does not verify.
        :raises BadDataError: an index belongs to another file, or files have different row formats.
        """
        self.row_format = _common_format(sources)
        cache = cache or default_cache()
        with phase(PhaseName.DATA):
            self._paths = [_local_copy(s.data_uri, s.file.data, cache) for s in each(sources)]
            self._indexes = [_checked_index(source, cache) for source in each(sources)]
        counts = np.array([source.file.records for source in sources], np.int64)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self._serial = next(_serials)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        """Return the serialized ``tf.train.Example`` of each record number, in the order given."""
        files = np.searchsorted(self._ends, numbers, side="right")
        return [self._read_one(int(f), int(n)) for f, n in zip(files, numbers, strict=True)]

    def _read_one(self, file: int, number: int) -> bytes:
        row = number - int(self._starts[file])
        # Both are referenced while they are read, as other threads may evict them from the cache.
        index = _open_unbuffered(self._serial, self._indexes[file])
        offsets = os.pread(index.fileno(), OFFSETS.size, row * OFFSET_BYTES)
        begin, end = OFFSETS.unpack(offsets)
        size = end - begin - HEADER_BYTES - FOOTER_BYTES
        data = _open_unbuffered(self._serial, self._paths[file])
        return os.pread(data.fileno(), size, begin + HEADER_BYTES)

    def first_records(self) -> list[tuple[str, bytes]]:
        """Return the path and first record of every file."""
        return list(zip(map(str, self._paths), self.read(self._starts), strict=True))


def _common_format(sources: list[RecordSource]) -> RowFormat:
    first = sources[0]
    for source in sources:
        if source.row_format != first.row_format:
            raise BadDataError(
                f"{source.data_uri} holds {source.row_format}, but {first.data_uri} holds "
                f"{first.row_format}; records of different kinds cannot be read as one list. "
                "Prepare the partitions again with one configuration."
            )
    return first.row_format


@functools.lru_cache(maxsize=OPEN_FILES)
def _open_unbuffered(reader: int, path: Path) -> BinaryIO:
    """Open a file of a reader; it is closed once it is evicted and no longer referenced."""
    return path.open("rb", buffering=0)


def _local_copy(uri: str, digest: FileDigest, cache: Path) -> Path:
    """Return a verified local file; one in a cloud store is copied, once per content."""
    if not uris.is_cloud(uri):
        artifacts.verify_file(uri, digest)
        return Path(uris.for_library(uri))
    return cached_copy(uri, digest, cache)


def cached_copy(uri: str, digest: FileDigest, cache: Path) -> Path:
    """Copy a file into the cache under its content hash, unless it is there already; return it.

    :raises FormatError: the file does not verify.
    """
    target = cache / digest.sha256
    try:
        # A machine that crashed may have left the name without the bytes.
        artifacts.verify_file(str(target.absolute()), digest)
    except FormatError:
        aside = target.with_suffix(f".{os.getpid()}")
        artifacts.fetch_file(uri, digest, aside)
        aside.replace(target)
    return target


def _checked_index(source: RecordSource, cache: Path) -> Path:
    """Return the local offset index of a record file.

    :raises FormatError: it does not verify.
    :raises BadDataError: it is the index of another file.
    """
    path = _local_copy(source.index_uri, source.file.index, cache)
    records, size = source.file.records, source.file.data.bytes
    found = path.stat().st_size // OFFSET_BYTES
    if found != records + 1 or not _covers(path, records, size):
        raise BadDataError(
            f"{source.index_uri} is not the index of {source.data_uri}: expected {records + 1} "
            f"rising offsets from 0 to {size}, found {found}. Prepare the shard again."
        )
    return path


def _covers(index: Path, records: int, size: int) -> bool:
    """Return whether the records of an index cover a file from 0 to its size without gaps."""

    def offsets(begin: int, count: int) -> npt.NDArray[np.int64]:
        return np.fromfile(index, "<i8", count, offset=begin * OFFSET_BYTES)

    if (int(offsets(0, 1)[0]), int(offsets(records, 1)[0])) != (0, size):
        return False
    parts = (offsets(n, CHECKED_OFFSETS + 1) for n in range(0, records, CHECKED_OFFSETS))
    return all(np.diff(part).min() > HEADER_BYTES + FOOTER_BYTES for part in parts)
