"""The store on a file system, made atomic by rename, hard link and a lock file.

A write survives a power cut once the call has returned: the file's bytes are synced before it gets
its name, and the folder afterwards. So a commit never refers to a file that a power cut can remove.
Within :func:`together`, writes are durable only once the context has exited.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from pipeline_store.details import Listing, ObjectDetails, Oddity

# Names of the backend's own helper files; they are never listed as objects.
ASIDE_MARK = ".aside-"
LOCK_SUFFIX = ".lock~"
_ASIDE = re.compile(re.escape(ASIDE_MARK) + r"[0-9a-f]{32}")

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk or an exhausted disk quota."""
_NO_RIGHT = (errno.EROFS, errno.EACCES, errno.EPERM)

_AT_ONCE = 8
_later: ContextVar[dict[Path, None] | None] = ContextVar("later", default=None)
"""Files and folders that are synced at the end of :func:`together`."""


class UnwritableError(OSError):
    """There is no space, or no permission, to write; the message has path, need and remedy."""


def _path(uri: str) -> Path:
    path = Path(uri.removeprefix("file://"))
    if not path.is_absolute():
        raise ValueError(f"Store path {uri!r} is relative; give an absolute path or gs:// URI.")
    return path


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def together() -> Iterator[None]:
    """Defer syncs until this context exits, and then sync all files concurrently.

    For files that nothing refers to before then. A disk syncs many small files in the time of one
    if the requests are made in parallel.

    :raises UnwritableError: there is no space for the written data.
    """
    paths: dict[Path, None] = {}
    token = _later.set(paths)
    try:
        yield
    finally:
        _later.reset(token)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for path, done in [(path, pool.submit(_sync, path)) for path in paths]:
            try:
                done.result()
            except OSError as error:
                raise _explained(error, path, path.stat().st_size) from error


def _last(path: Path, name: Path | None = None) -> None:
    """Make a file's bytes, or a folder's entries, durable: now, or when :func:`together` ends.

    :param name: the path that the file will be renamed to, if any.
    """
    later = _later.get()
    if later is None:
        _sync(path)
    else:
        later[name or path] = None


def _sync(path: Path) -> None:
    """Wait until the bytes of a file, or the entries of a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_parent(path: Path) -> None:
    """Create the folder of a file and its parents durably."""
    if path.parent.is_dir():
        return
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in made:
        _last(folder.parent)


@contextmanager
def _aside(path: Path, size: int) -> Iterator[Path]:
    """Yield a temporary path in a file's folder; a file left there at the end is removed.

    :param size: number of bytes to be written.
    :raises UnwritableError: there is no space, or no permission, to write.
    """
    aside = path.with_name(f"{ASIDE_MARK}{uuid.uuid4().hex}")
    try:
        _make_parent(path)
        try:
            yield aside
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise _explained(error, path, size) from error
    _last(path.parent)


def _explained(error: OSError, path: Path, size: int) -> OSError:
    """Return a write error with its need and remedy in the message, where they are known."""
    if error.errno in NO_ROOM:
        free = shutil.disk_usage(next(folder for folder in path.parents if folder.exists())).free
        text = (
            f"no room to write {size:,} bytes, {free:,} are free on this disk; make room, for "
            "example by `python -m model_registry prune --delete`, and try again"
        )
    elif error.errno in _NO_RIGHT:
        text = (
            f"{os.strerror(error.errno)}, so nothing can be written or removed there; mount the "
            "store for writing, or give this account the right to"
        )
    else:
        return error
    return UnwritableError(error.errno, text, str(path))


def _fill(aside: Path, data: bytes, path: Path) -> None:
    """Write a file's bytes durably.

    :param path: the path that the file will be renamed or linked to.
    """
    aside.write_bytes(data)
    _last(aside, path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        _make_parent(path)
        lock = path.with_name(path.name + LOCK_SUFFIX).open("wb")
    except OSError as error:
        raise _explained(error, path, 0) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _objects(folder: Path) -> Iterator[Path]:
    return (
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.name.startswith(ASIDE_MARK)
        and not path.name.endswith(LOCK_SUFFIX)
    )


def oddities(folder: str) -> Iterator[Oddity]:
    """Yield the entries below a folder that are neither listed as objects nor searched."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.path)
    except PermissionError:
        yield Oddity(folder, "a folder that this process may not read", is_folder=True)
        return
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from oddities(entry.path)
        elif os.path.isdir(entry.path):
            # Not followed: deleting below this folder would delete files elsewhere.
            yield Oddity(entry.path, "a link to a folder", is_folder=True)
        elif (what := _not_a_plain_file(entry)) is not None:
            yield Oddity(entry.path, what, is_folder=False)


def _not_a_plain_file(entry: os.DirEntry[str]) -> str | None:
    if not os.path.isfile(entry.path):
        is_lost = entry.is_symlink() and not os.path.exists(entry.path)
        return "a link that leads nowhere" if is_lost else "a pipe, socket or device"
    if entry.stat().st_size == 0 and _has_content(entry.path):
        return "a file of the operating system, which does not say how long it is"
    return None


def _has_content(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096) != b""
    except PermissionError:
        return False  # the later read reports it
    except OSError:
        return True


def _details(paths: Iterable[Path]) -> Listing:
    found = []
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        changed = datetime.fromtimestamp(status.st_mtime, UTC)
        found.append(ObjectDetails(str(path), status.st_size, changed))
    return sorted(found)


class LocalBackend:
    """Objects are files. A version is the SHA-256 of the content.

    Equal content therefore has an equal version; objects that are changed by compare-and-set carry
    a sequence number, so their content never repeats. The file system must support hard links and
    ``flock`` between all writers: a local disk, or NFS version 4.
    """

    def read(self, uri: str) -> bytes:
        """Return the whole file."""
        return _path(uri).read_bytes()

    def read_versioned(self, uri: str) -> tuple[bytes, str] | None:
        """Return the file's content and its hash, or None."""
        try:
            data = _path(uri).read_bytes()
        except FileNotFoundError:
            return None
        return data, _version(data)

    def open(self, uri: str) -> BinaryIO:
        """Open the file for reading."""
        return _path(uri).open("rb")

    def write(self, uri: str, data: bytes) -> None:
        """Write to a temporary file, then rename it over the target."""
        path = _path(uri)
        with _aside(path, len(data)) as aside:
            _fill(aside, data, path)
            aside.replace(path)

    def upload(self, uri: str, path: str) -> None:
        """Copy to a temporary file, then rename it over the target."""
        target = _path(uri)
        with _aside(target, Path(path).stat().st_size) as aside:
            shutil.copyfile(path, aside)
            _last(aside, target)
            aside.replace(target)

    def create(self, uri: str, data: bytes) -> bool:
        """Write to a temporary file, then hard-link it to the target; fails if that exists."""
        path = _path(uri)
        if path.exists():
            # Its writer may have been killed before the sync, and the caller relies on the file.
            _last(path)
            _last(path.parent)
            return False
        with _aside(path, len(data)) as aside:
            _fill(aside, data, path)
            try:
                os.link(aside, path)
            except FileExistsError:
                _last(path)
                return False
        return True

    def replace(self, uri: str, data: bytes, version: str | None) -> str | None:
        """Compare and rename while holding an exclusive lock file next to the target."""
        path = _path(uri)
        with _locked(path):
            found = self.read_versioned(uri)
            if (None if found is None else found[1]) != version:
                return None
            with _aside(path, len(data)) as aside:
                _fill(aside, data, path)
                aside.replace(path)
        return _version(data)

    def size(self, uri: str) -> int | None:
        """Return the file's size, or None when it is absent or a folder."""
        path = _path(uri)
        return path.stat().st_size if path.is_file() else None

    def modified(self, uri: str) -> datetime | None:
        """Return when the file was last changed, or None when there is none."""
        try:
            return datetime.fromtimestamp(_path(uri).stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> list[str]:
        """Return all files below a folder, except this module's own helper files."""
        return sorted(map(str, _objects(_path(prefix))))

    def list_details(self, prefix: str) -> Listing:
        """Return all files below a folder with sizes and modification times."""
        return _details(_objects(_path(prefix)))

    def list_named(self, prefix: str, names: Sequence[str], below: str) -> Listing:
        """Return the files with these names below each folder."""
        folders = _path(prefix).glob(f"*/{below}")
        return _details(path / name for path in folders for name in names)

    def list_leftovers(self, prefix: str) -> Listing:
        """Return the temporary files that killed writers left behind."""
        return _details(path for path in _path(prefix).rglob("*") if _ASIDE.fullmatch(path.name))

    def location(self, uri: str) -> None:
        """Return None: a directory is in no region."""

    def delete(self, uri: str) -> None:
        """Unlink the file if it exists; a power cut does not bring it back."""
        path = _path(uri)
        try:
            path.unlink()
            _last(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _explained(error, path, 0) from error
