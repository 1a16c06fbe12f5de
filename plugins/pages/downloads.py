"""Streams the files of a published model as one archive, without a copy on disk."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from pipeline_store import uris
from pipeline_store.formats import ModelVersion
from pipeline_store.layout import LineageLayout, VersionLayout

_END = b"\0" * (2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class ArchivedFile:
    """One file of a version: its path in the version's folder, and its size in bytes."""

    path: str
    bytes: int


def archived_files(model: ModelVersion, folder: str = "") -> list[ArchivedFile]:
    """Return the files that a version's record names, all or those below one of its folders.

    :param folder: such as ``hugging_face``; it is compared with names in the record and is never
        used as a path.
    :raises ValueError: the record names a file outside the version's folder.
    """
    for file in model.files:
        parts = PurePosixPath(file.path).parts
        if PurePosixPath(file.path).is_absolute() or ".." in parts:
            raise ValueError(
                f"Version {model.version_id}: its record names the file {file.path!r}, which is "
                "outside its folder. The record is damaged: `python -m model_registry check`."
            )
    prefix = f"{folder}/" if folder else ""
    return [ArchivedFile(f.path, f.bytes) for f in model.files if f.path.startswith(prefix)]


def folder_sizes(model: ModelVersion) -> dict[str, int]:
    """Return the sizes in bytes of a version's folders by name; the empty name is the total."""
    sizes: dict[str, int] = {"": 0}
    for file in archived_files(model):
        sizes[""] += file.bytes
        folder, slash, _ = file.path.partition("/")
        if slash:
            sizes[folder] = sizes.get(folder, 0) + file.bytes
    return dict(sorted(sizes.items()))


def tar_stream(
    lineage: LineageLayout, model: ModelVersion, files: list[ArchivedFile]
) -> Iterator[bytes]:
    """Yield a tar archive of a version's record and of some of its files, piece by piece.

    :raises OSError: a file is missing or has another size. The download then breaks off, because an
        incomplete archive would be taken for a complete one.
    """
    record = uris.read(VersionLayout(lineage.version(model.version_id)).model)
    yield _header(model, "model.json", len(record), model.created)
    yield record + _padding(len(record))
    for file in files:
        yield _header(model, file.path, file.bytes, model.created)
        seen = 0
        for chunk in uris.chunks(uris.join(lineage.version(model.version_id), file.path)):
            seen += len(chunk)
            yield chunk
        if seen != file.bytes:
            raise OSError(
                f"{file.path} of version {model.version_id} has {seen} bytes and not {file.bytes}, "
                "as its record says: `python -m model_registry check` names what is damaged."
            )
        yield _padding(seen)
    yield _END


def _header(model: ModelVersion, path: str, size: int, created: datetime) -> bytes:
    entry = tarfile.TarInfo(f"{model.version_id}/{path}")
    entry.size, entry.mode, entry.mtime = size, 0o644, int(created.timestamp())
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % tarfile.BLOCKSIZE)
