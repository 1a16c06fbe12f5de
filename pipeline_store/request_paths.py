"""Where the files may lie that a request names: the form, REST, a backfill, a task's description.

Whoever may trigger a run chooses paths, and the run reads them with the rights of the Airflow
worker. Without a border that is every file of the worker, its passwords among them. The border is
made of roots, folders that the installation names (``REPRETRAIN_INPUT_ROOTS``), and holds three
times: for the path as it is written, for each file that a pattern matches, with links followed, and
for the file that was opened, as a link can be replaced between two looks.

A process that works for a request is told its roots by :func:`limited_to`, and so are the processes
that it starts, through the environment. A command that a person runs has no roots: the rights of
that person are the border.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from pipeline_store import uris

PUBLISHED = "lineages/*/versions"
"""Models that were put into use, with their vocabularies: another lineage may begin with one."""

_VARIABLE = "REPRETRAIN_REQUEST_ROOTS"
_SIGNS = "*?["


class OutsideRootsError(ValueError):
    """A request names a file that lies below none of the roots."""


@dataclass(frozen=True)
class RequestRoots:
    """The folders below which a request may name files.

    :ivar roots: absolute paths or ``gs://`` URIs of folders or single files.
    :ivar models: the same, for models and vocabularies only; a part ``*`` stands for any folder.
    """

    roots: tuple[str, ...]
    models: tuple[str, ...]

    @classmethod
    def of(cls, store_root: str, roots: Sequence[str]) -> RequestRoots:
        """Return the roots; relative ones lie below the store."""
        absolute = (r if uris.is_absolute(r) else uris.join(store_root, r) for r in roots)
        return cls(tuple(absolute), (uris.join(store_root, PUBLISHED),))

    def require(self, uri: str, *, model: bool = False) -> None:
        """Return if a path or pattern, links followed, can only name files below a root.

        :param uri: absolute; may hold ``*``, ``?`` and ``[...]``.
        :param model: whether it is to be a model or a vocabulary.
        :raises OutsideRootsError: it can name others. Nothing is said of what lies there.
        """
        allowed = (*self.roots, *self.models) if model else self.roots
        parts = _parts(_before_signs(uri))
        if parts is None or not any(_lies_below(parts, _parts(root)) for root in allowed):
            raise OutsideRootsError(
                f"{uri} lies below none of the folders that requests may read "
                f"({', '.join(allowed)}). Put the files there; or whoever runs this installation "
                "adds their folder to REPRETRAIN_INPUT_ROOTS or names it in a preset."
            )


def _before_signs(uri: str) -> str:
    """Return the folder that all matches of a pattern lie in; a plain path as it is."""
    first = min((uri.index(sign) for sign in _SIGNS if sign in uri), default=None)
    return uri if first is None else uri[:first].rpartition("/")[0]


def _parts(uri: str) -> list[str] | None:
    """Return a path's parts with links followed; None where it has no plain meaning."""
    if not uris.is_cloud(uri):
        return os.path.realpath(uris.for_library(uri)).split("/")
    parts = uri.rstrip("/").split("/")
    # An object's name may hold these; some libraries take them for the folder above.
    return None if {".", ".."} & set(parts) or "" in parts[2:] else parts


def _lies_below(parts: list[str], root: list[str] | None) -> bool:
    if root is None or len(parts) < len(root):
        return False
    return all(wanted in ("*", part) for part, wanted in zip(parts, root, strict=False))


def current() -> RequestRoots | None:
    """Return the roots of the request that this process works for; None: it is a person's."""
    text = os.environ.get(_VARIABLE)
    return None if text is None else RequestRoots(*map(tuple, json.loads(text)))


def variables(roots: RequestRoots) -> dict[str, str]:
    """Return the environment that tells a process its roots."""
    return {_VARIABLE: json.dumps([roots.roots, roots.models])}


@contextmanager
def limited_to(roots: RequestRoots) -> Iterator[None]:
    """Hold this process, and those that it starts, to the roots of a request."""
    before = os.environ.get(_VARIABLE)
    os.environ.update(variables(roots))
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
        if before is not None:
            os.environ[_VARIABLE] = before


def require(uri: str, *, model: bool = False) -> str:
    """Return a path that a request names.

    :param model: whether it is to be a model or a vocabulary.
    :raises OutsideRootsError: it lies below none of the roots that there are.
    """
    if (roots := current()) is not None:
        roots.require(uri, model=model)
    return uri


def glob(pattern: str) -> list[str]:
    """Return the files that a request's pattern matches, as :func:`pipeline_store.uris.glob`.

    :raises OutsideRootsError: the pattern, or one of its matches, leads out of the roots.
    """
    require(pattern)
    return [require(uri) for uri in uris.glob(pattern)]


def open_stream(uri: str, *, model: bool = False) -> BinaryIO:
    """Open a file that a request names.

    :param model: whether it is to be of a model or a vocabulary.
    :raises OutsideRootsError: what was opened lies below none of the roots.
    :raises FileNotFoundError: there is none.
    """
    stream = uris.open_stream(require(uri, model=model))
    if not uris.is_cloud(uri):
        require_opened(stream, model=model)
    return stream


def require_opened(stream: BinaryIO, *, model: bool = False) -> None:
    """Close a file of this machine that turns out to lie outside of the roots.

    :param model: whether it is to be of a model or a vocabulary.
    :raises OutsideRootsError: it does: a link was replaced since its path was looked at.
    """
    if current() is None:
        return
    try:
        # The kernel's own name of what was opened.
        require(os.readlink(f"/proc/self/fd/{stream.fileno()}"), model=model)
    except OutsideRootsError:
        stream.close()
        raise


def read(uri: str, *, model: bool = False) -> bytes:
    """Return a file that a request names; raises as :func:`open_stream`."""
    with open_stream(uri, model=model) as stream:
        return stream.read()


def sha256(uri: str) -> str:
    """Return the hash of a file that a request names; raises as :func:`open_stream`."""
    digest = hashlib.sha256()
    with open_stream(uri) as stream:
        while chunk := stream.read(uris.CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
