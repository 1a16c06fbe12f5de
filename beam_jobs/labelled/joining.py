"""Joins the parts of a split into one file each of records, offsets and sources.

Files are named by their content, so a retry writes the same files again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from beam_jobs.labelled.outcome import StoredPart
from corpus.rows.record_files import LocalFile
from corpus.text.compression import BLOCK_BYTES
from pipeline_store import uris
from pipeline_store.formats import FileDigest

_NAME_DIGITS = 16


def join_records(parts: Sequence[StoredPart], folder: str, name: str) -> dict[str, FileDigest]:
    """Write the parts of a split, one after the other, into files of a folder.

    :param parts: in order of their files.
    :returns: the files ``data``, ``index`` and ``sources`` of ``TaskRecords``.
    """
    with tempfile.TemporaryDirectory(prefix="task-") as local:
        files = {
            "data": _written(Path(local, "data"), _blocks([part.data for part in parts])),
            "index": _written(Path(local, "index"), _offsets(parts)),
            "sources": _written(Path(local, "sources"), _blocks([part.sources for part in parts])),
        }
        ends = {"data": ".tfrecord", "index": ".idx", "sources": ".sources"}
        return {kind: keep(file, folder, name, ends[kind]) for kind, file in files.items()}


def join_letters(letters: Sequence[str], folder: str) -> FileDigest | None:
    """Concatenate dead-letter files into one in a folder; return None if there are none."""
    if not letters:
        return None
    with tempfile.TemporaryDirectory(prefix="task-") as local:
        joined = _written(Path(local, "letters"), _blocks(letters))
        return keep(joined, folder, "dead_letter", ".jsonl")


def keep(file: LocalFile, folder: str, name: str, end: str) -> FileDigest:
    """Upload a file to the store under a name that contains its hash."""
    digest = file.digest(name)
    path = f"{name}-{digest.sha256[:_NAME_DIGITS]}{end}"
    uris.upload(str(file.path), uris.join(folder, path))
    return file.digest(path)


def _written(path: Path, blocks: Iterator[bytes]) -> LocalFile:
    with LocalFile(path) as file:
        for block in blocks:
            file.write(block)
    return file


def _blocks(sources: Sequence[str]) -> Iterator[bytes]:
    for uri in sources:
        with uris.open_stream(uri) as stream:
            yield from iter(partial(stream.read, BLOCK_BYTES), b"")


def _offsets(parts: Sequence[StoredPart]) -> Iterator[bytes]:
    """Yield the index of the joined file: each part's offsets but the last, then the end."""
    begin = np.uint64(0)
    for part in parts:
        offsets = np.frombuffer(uris.read(part.index), "<u8") + begin
        yield offsets[:-1].astype("<u8").tobytes()
        begin = offsets[-1]
    yield np.array([begin], "<u8").tobytes()
