"""Random access to records: any record of many TFRecord files by its number, by one read each."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from pipeline_store.formats import FileDigest
from training import artifacts
from training.corpus import RecordSource
from training.errors import BadDataError
from training.row_format import RowFormat

# TFRecord framing: length (8 bytes) and its checksum (4) before the data, a checksum (4) after it.
# Source: https://www.tensorflow.org/tutorials/load_data/tfrecord
HEADER_BYTES = 12
FOOTER_BYTES = 4
OPEN_FILES = 256


def default_cache() -> Path:
    """Return the folder for record files that have to be copied from a cloud store."""
    base = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return Path(base, "bert-repretraining", "records")


class RecordReader:
    """The records of several files as one list; record numbers run through all files in order.

    ``row_format`` is what every record holds. Memory holds the offsets (8 bytes a record), never
    the records. Files are verified once, here. Files of a cloud store are copied to the local disk
    first, as a step needs many small reads.
    """

    def __init__(self, sources: list[RecordSource], cache: Path | None = None) -> None:
        """Open the files.

        :param sources: at least one, all of one row format.
        :raises FormatError: a file does not verify.
        :raises BadDataError: an index is not that of its file, or files hold different things.
        """
        self.row_format = _common_format(sources)
        cache = cache or default_cache()
        self._paths = [_local_copy(s.data_uri, s.file.data, cache) for s in sources]
        self._offsets = [_load_index(source, cache) for source in sources]
        counts = np.array([len(offsets) - 1 for offsets in self._offsets], np.int64)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        # Corpora have more shards than a process may have open files.
        self._open = functools.lru_cache(maxsize=OPEN_FILES)(_open_unbuffered)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        """Return the serialized ``tf.train.Example`` of each record number, in the order given."""
        files = np.searchsorted(self._ends, numbers, side="right")
        return [self._read_one(int(f), int(n)) for f, n in zip(files, numbers, strict=True)]

    def _read_one(self, file: int, number: int) -> bytes:
        row = number - int(self._starts[file])
        begin, end = map(int, self._offsets[file][row : row + 2])
        descriptor = self._open(self._paths[file]).fileno()
        size = end - begin - HEADER_BYTES - FOOTER_BYTES
        return os.pread(descriptor, size, begin + HEADER_BYTES)

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


def _open_unbuffered(path: Path) -> BinaryIO:
    return path.open("rb", buffering=0)


def _local_copy(uri: str, digest: FileDigest, cache: Path) -> Path:
    """Return a verified local file; one in a cloud store is copied, once per content."""
    if not uris.is_cloud(uri):
        artifacts.verify_file(uri, digest)
        return Path(uris.for_library(uri))
    return cached_copy(uri, digest, cache)


def cached_copy(uri: str, digest: FileDigest, cache: Path) -> Path:
    """Copy a file into the cache under the name of its content, unless it is there already.

    :raises FormatError: the file does not verify.
    """
    target = cache / digest.sha256
    if not (target.is_file() and target.stat().st_size == digest.bytes):
        aside = target.with_suffix(f".{os.getpid()}")
        artifacts.fetch_file(uri, digest, aside)
        aside.replace(target)
    return target


def _load_index(source: RecordSource, cache: Path) -> npt.NDArray[np.uint64]:
    path = _local_copy(source.index_uri, source.file.index, cache)
    offsets = np.fromfile(path, dtype="<u8")
    framing = HEADER_BYTES + FOOTER_BYTES
    sound = (
        len(offsets) == source.file.records + 1
        and int(offsets[0]) == 0
        and int(offsets[-1]) == source.file.data.bytes
        and bool(np.all(np.diff(offsets.astype(np.int64)) > framing))
    )
    if not sound:
        raise BadDataError(
            f"{source.index_uri} is not the index of {source.data_uri}: expected "
            f"{source.file.records + 1} rising offsets from 0 to {source.file.data.bytes}, found "
            f"{len(offsets)}. Prepare the shard again."
        )
    return offsets
