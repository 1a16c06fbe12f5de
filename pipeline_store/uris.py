"""The one module that knows what a URI scheme is: plain directories (or ``file://``) and ``gs://``.

All stored files are read and written through these functions. Beam, TensorFlow and Airflow get
their URIs through :func:`for_library`, so no other module inspects a scheme.

The project's guarantees rest on two writes, and every backend has both:

* :func:`create_if_absent`: of any number of writers exactly one succeeds. Commits use it.
* :func:`compare_and_set`: replace an object only if it is still the version that was read.
"""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import os
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import BinaryIO, Protocol

from pipeline_store import gcs, local
from pipeline_store.details import Listing, Oddity

_log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
Reader = Callable[[str], bytes]
"""Reads a file; lets a caller substitute a reader that restricts which files a request may name."""


class PathError(ValueError):
    """A relative path would leave the folder that it is relative to."""


class VersionConflictError(RuntimeError):
    """A compare-and-set lost: the object is no longer the version the caller read."""


class Backend(Protocol):
    """The interface of a storage backend. Versions are opaque strings."""

    def read(self, uri: str) -> bytes:
        """Return the whole object; raise FileNotFoundError when there is none."""
        ...

    def read_versioned(self, uri: str) -> tuple[bytes, str] | None:
        """Return the object with its version, or None when there is none."""
        ...

    def open(self, uri: str) -> BinaryIO:
        """Open the object for streaming; raise FileNotFoundError when there is none."""
        ...

    def write(self, uri: str, data: bytes) -> None:
        """Create or replace the object; readers see the old or the new content, never a mix."""
        ...

    def upload(self, uri: str, path: str) -> None:
        """Create or replace the object from a file on this machine, whole or not at all."""
        ...

    def create(self, uri: str, data: bytes) -> bool:
        """Create the object; return False, changing nothing, when it exists."""
        ...

    def replace(self, uri: str, data: bytes, version: str | None) -> str | None:
        """Write if the version still is ``version`` (None: absent); return the new one or None."""
        ...

    def size(self, uri: str) -> int | None:
        """Return the size in bytes, or None when there is no such object."""
        ...

    def modified(self, uri: str) -> datetime | None:
        """Return when the object was last written, or None when there is no such object."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Return all objects below a folder, sorted; an absent folder is empty."""
        ...

    def list_details(self, prefix: str) -> Listing:
        """Return the objects of :meth:`list` with sizes and times, without one call per object."""
        ...

    def list_named(self, prefix: str, names: Sequence[str], below: str) -> Listing:
        """Return the objects ``<prefix><folder>/<below><name>`` with sizes and times, sorted."""
        ...

    def list_leftovers(self, prefix: str) -> Listing:
        """Return partial files that killed writers left behind; no other call lists them."""
        ...

    def location(self, uri: str) -> str | None:
        """Return the storage location as its service names it, or None."""
        ...

    def delete(self, uri: str) -> None:
        """Delete one object; a missing object is not an error."""
        ...


def _backend(uri: str) -> Backend:
    scheme = uri.split("://", 1)[0] if "://" in uri else "file"
    if scheme == "file":
        return local.LocalBackend()
    if scheme == "gs":
        return gcs.GcsBackend()
    raise ValueError(
        f"URI {uri!r} has scheme {scheme!r}: the store is a plain directory or a gs:// bucket. "
        "Use an absolute path or gs://BUCKET/PREFIX."
    )


def join(base: str, *parts: str) -> str:
    """Append path parts to a URI; a part must not escape the base.

    :raises PathError: a part is absolute or contains ``..``.
    """
    for part in parts:
        if part.startswith("/") or ".." in part.split("/"):
            raise PathError(f"Path part {part!r} would leave {base!r}; give a relative path.")
    return posixpath.join(base.rstrip("/"), *parts)


def dataset_name(uri: str) -> tuple[str, str]:
    """Return the OpenLineage namespace and name of a file or folder, per its naming conventions."""
    if is_cloud(uri):
        bucket, name = in_bucket(uri)
        return bucket, name.rstrip("/") or "/"
    return "file", posixpath.abspath(for_library(uri))


def is_cloud(uri: str) -> bool:
    """Return whether the URI is in an object store rather than on this machine."""
    return uri.startswith("gs://")


def is_absolute(uri: str) -> bool:
    """Return whether the URI is absolute (has a scheme or is an absolute path)."""
    return "://" in uri or uri.startswith("/")


def absolute(uri: str) -> str:
    """Return a command's URI argument as an absolute one, relative to the working directory."""
    return uri if is_absolute(uri) else os.path.abspath(uri)


def for_library(uri: str) -> str:
    """Return the URI in the form that Beam and TensorFlow accept: a plain path or ``gs://``."""
    _backend(uri)
    return uri.removeprefix("file://")


def in_bucket(uri: str) -> tuple[str, str]:
    """Return a cloud URI's bucket, with its scheme, and the name in it."""
    bucket, name = gcs.bucket_and_name(uri)
    return f"gs://{bucket}", name


def media_url(uri: str) -> str:
    """Return a URL from which the bare Python standard library can download the object.

    The TPU VM's boot script has no client library yet; for ``gs://`` it adds the VM's own token.
    """
    if not is_cloud(uri):
        return "file://" + urllib.parse.quote(for_library(uri))
    bucket, name = gcs.bucket_and_name(uri)
    quoted = urllib.parse.quote(name, safe="")
    return f"https://storage.googleapis.com/storage/v1/b/{bucket}/o/{quoted}?alt=media"


def browser_url(folder: str) -> str:
    """Return the URL of a bucket's folder in the Google Cloud console.

    Empty for a local folder: browsers follow no ``file://`` link from a page.
    """
    if not is_cloud(folder):
        return ""
    path = urllib.parse.quote(folder.removeprefix("gs://"))
    return f"https://console.cloud.google.com/storage/browser/{path}"


def read(uri: str) -> bytes:
    """Return the whole object.

    :raises FileNotFoundError: there is no such object.
    """
    return _backend(uri).read(uri)


def read_or_none(uri: str) -> bytes | None:
    """Return the whole object, or None when there is none."""
    found = _backend(uri).read_versioned(uri)
    return None if found is None else found[0]


def read_versioned(uri: str) -> tuple[bytes, str] | None:
    """Return the object and the version to hand to :func:`compare_and_set`, or None."""
    return _backend(uri).read_versioned(uri)


def open_stream(uri: str) -> BinaryIO:
    """Open the object for reading in pieces.

    :raises FileNotFoundError: there is no such object.
    """
    return _backend(uri).open(uri)


def write(uri: str, data: bytes) -> None:
    """Create or replace the object atomically. For status files that have a single writer."""
    _backend(uri).write(uri, data)


def upload(path: str, uri: str) -> None:
    """Copy a local file into the store atomically."""
    _backend(uri).upload(uri, path)


@contextmanager
def together() -> Iterator[None]:
    """Defer syncing files to disk until this context exits, which is faster for several files.

    For files that nothing refers to before then. Objects in a bucket are durable at once.
    """
    with local.together():
        yield


def copy(source: str, target: str) -> None:
    """Copy one small object; its content passes through memory."""
    write(target, read(source))


def create_if_absent(uri: str, data: bytes) -> bool:
    """Create the object unless it exists; of concurrent callers exactly one gets True."""
    return _backend(uri).create(uri, data)


def compare_and_set(uri: str, data: bytes, version: str | None) -> str:
    """Replace the object only if it is still at ``version``; None means it must not exist.

    :returns: the new version.
    :raises VersionConflictError: another writer was first; read again and decide again.
    """
    new_version = _backend(uri).replace(uri, data, version)
    if new_version is None:
        raise VersionConflictError(
            f"{uri} is no longer at version {version!r}: another writer was first. "
            "Read it again and decide on its new content."
        )
    return new_version


def exists(uri: str) -> bool:
    """Return whether there is such an object (folders are not objects)."""
    return _backend(uri).size(uri) is not None


def size(uri: str) -> int:
    """Return the object's size in bytes.

    :raises FileNotFoundError: there is no such object.
    """
    found = _backend(uri).size(uri)
    if found is None:
        raise FileNotFoundError(uri)
    return found


def modified(uri: str) -> datetime | None:
    """Return when the object was last written, by the store's clock, or None when it is absent.

    For a directory that is the clock of the machine that has the disk, or of the writing machine.
    """
    return _backend(uri).modified(uri)


def sha256(uri: str) -> str:
    """Return the hex SHA-256 of the object's bytes, read in pieces."""
    digest = hashlib.sha256()
    for chunk in chunks(uri):
        digest.update(chunk)
    return digest.hexdigest()


def chunks(uri: str) -> Iterator[bytes]:
    """Yield the object's bytes in pieces of at most one MiB."""
    with open_stream(uri) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def list_files(folder: str) -> list[str]:
    """Return every object below a folder, at any depth, sorted; an absent folder is empty."""
    return _backend(folder).list(folder.rstrip("/") + "/")


def list_details(folder: str) -> Listing:
    """Return every object below a folder with its size and age, sorted as :func:`list_files`.

    An object that is deleted in the meantime may be left out.
    """
    return _backend(folder).list_details(folder.rstrip("/") + "/")


def list_named(folder: str, *names: str, below: str = "") -> Listing:
    """Return the objects ``<folder>/<any>/<below>/<name>`` with size and age, sorted.

    Other objects in those folders are not listed, so this is cheap where they hold many.

    :param names: names without any of ``*?[]{},/``.
    :param below: intermediate folders, as ``a/b``; ``*`` matches any single folder.
    """
    return _backend(folder).list_named(folder.rstrip("/") + "/", names, below and f"{below}/")


def list_leftovers(folder: str) -> Listing:
    """Return the partial files of killed writers below a folder, with size and age, sorted.

    Such a file is never listed as an object; :func:`delete` removes it.
    """
    return _backend(folder).list_leftovers(folder.rstrip("/") + "/")


def glob(pattern: str) -> list[str]:
    """Return the objects that match a pattern with ``*``, ``?`` or ``[...]``, sorted.

    As in a shell, ``*`` matches neither a ``/`` nor a leading dot.
    """
    if not any(sign in pattern for sign in "*?["):
        return [pattern] if exists(pattern) else []
    if exists(pattern):
        # A file's own name may contain wildcard characters.
        return [pattern]
    wanted = for_library(pattern).split("/")
    found = ((uri, for_library(uri).split("/")) for uri in list_files(pattern_folder(pattern)))
    return [uri for uri, p in found if len(p) == len(wanted) and all(map(_part_matches, p, wanted))]


def oddities(pattern: str) -> list[Oddity]:
    """Return paths that match a pattern, or folders it would search, and that :func:`glob` skips.

    Folders that match where the pattern asks for files are left out. A bucket has no such paths.
    """
    if is_cloud(pattern):
        return []
    wanted = for_library(pattern).split("/")
    folder = pattern_folder(pattern)
    if folder == pattern:
        folder = pattern.rpartition("/")[0]

    def is_wanted(oddity: Oddity) -> bool:
        parts = oddity.uri.split("/")
        depth = len(wanted) - oddity.is_folder
        is_deep_enough = len(parts) <= depth if oddity.is_folder else len(parts) == depth
        return is_deep_enough and all(map(_part_matches, parts, wanted))

    return [oddity for oddity in local.oddities(for_library(folder)) if is_wanted(oddity)]


def pattern_folder(pattern: str) -> str:
    """Return the folder that all matches of a pattern lie in; a path without wildcards unchanged.

    A ``{`` counts as a wildcard: it starts a placeholder for an id.
    """
    fixed = re.split(r"[*?\[{]", pattern, maxsplit=1)[0]
    return pattern if fixed == pattern else fixed.rpartition("/")[0]


def _part_matches(name: str, pattern: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(name, pattern)


def now(probe: str) -> datetime:
    """Return the time by the store's own clock, read by writing and deleting a probe object.

    Falls back to this machine's clock if the store cannot be written.

    :param probe: URI of an object that nothing else uses.
    """
    try:
        write(probe, b"")
    except Exception as error:  # noqa: BLE001 - each kind of store has its own; all mean no
        _log.warning("The store's clock cannot be read, so this machine's is used: %s", error)
        return datetime.now(UTC)
    try:
        name = posixpath.basename(probe)
        found = list_details(posixpath.dirname(probe))
        return next(file.modified for file in found if posixpath.basename(file.uri) == name)
    finally:
        _backend(probe).delete(probe)


def location(uri: str) -> str | None:
    """Return the location of the storage, such as ``US-CENTRAL1`` or ``EU``.

    None for a local directory, and where the service does not say.
    """
    return _backend(uri).location(uri)


def delete(uri: str) -> None:
    """Delete one object; a missing object is not an error."""
    _backend(uri).delete(uri)


def delete_tree(folder: str) -> None:
    """Delete every object below a folder."""
    for uri in list_files(folder):
        delete(uri)
