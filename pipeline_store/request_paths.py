"""Restricts the files that a request may name: the form, REST, a backfill, a task's description.

Anyone who may trigger a run chooses paths, and the run reads them with the rights of the Airflow
worker. Unrestricted, that is every file of the worker, including passwords. Requests are therefore
confined to roots, folders that the installation names (``REPRETRAIN_INPUT_ROOTS``). The check is
made three times: on the path or pattern as written, on each file that a pattern matches, with links
followed, and on the file that was opened, as a link can be replaced between check and use.

:func:`limited_to` passes the roots to a process that works for a request, and through the
environment to its child processes. A command that a person runs has no roots: it is limited by that
person's own rights.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from pipeline_store import uris

PUBLISHED = "lineages/*/versions"
"""Published models with their vocabularies: another lineage may start from one."""

DESCRIPTIONS = ("tasks/*/task.toml", "tasks/*/text_to_text.toml")
"""Files that describe labeled tasks; the files that they name must lie below the other roots."""

PLACEHOLDER = "{partition}"
"""Placeholder for the id of a partition in ``corpus.input_pattern``."""

_VARIABLE = "REPRETRAIN_REQUEST_ROOTS"


class OutsideRootsError(ValueError):
    """A request names a file outside all of the roots."""


@dataclass(frozen=True)
class RequestRoots:
    """The folders below which a request may name files.

    :ivar roots: absolute paths or ``gs://`` URIs of folders or single files; or patterns, each of
        which allows only the files that it matches.
    :ivar models: the same, for files other than text: models, vocabularies, task descriptions.
    :ivar beside: further files and patterns, also for non-text only, that messages do not list.
    """

    roots: tuple[str, ...]
    models: tuple[str, ...]
    beside: tuple[str, ...] = ()

    @classmethod
    def of(cls, store_root: str, roots: Sequence[str], beside: Sequence[str] = ()) -> RequestRoots:
        """Return the roots, with relative ones resolved against the store.

        :raises ValueError: a root has a ``..`` or a scheme that the store does not support.
        """

        def absolute(paths: Sequence[str]) -> tuple[str, ...]:
            found = (p if uris.is_absolute(p) else uris.join(store_root, p) for p in paths)
            return tuple(dict.fromkeys(map(uris.for_library, found)))

        return cls(absolute(roots), absolute([PUBLISHED]), absolute([*DESCRIPTIONS, *beside]))

    def require(self, uri: str, *, model: bool = False) -> None:
        """Require that a path, links followed, names a file or folder below a root.

        :param uri: absolute; a ``*`` in it is taken literally.
        :param model: whether the path names a model or the like rather than text.
        :raises OutsideRootsError: it does not. The message does not say whether the path exists.
        """
        if not self._allows(_parts(uri), model=model):
            raise self._refusal(uri, model=model)

    def require_pattern(self, pattern: str) -> None:
        """Require that a pattern, links followed, can only match files below a root.

        :param pattern: absolute; may contain ``*``, ``?``, ``[...]`` and ``{partition}``.
        :raises OutsideRootsError: it can match other files, or has parts such as ``..``.
        """
        plain = pattern.replace(PLACEHOLDER, "*")
        if odd := _odd_parts(plain):
            raise OutsideRootsError(f"{pattern} has {odd}, which a pattern may not have.")
        folder = uris.pattern_folder(plain)
        rest = plain.removeprefix(folder).lstrip("/")
        parts = _parts(folder)
        whole = None if parts is None else [*parts, *filter(None, rest.split("/"))]
        if not self._allows(parts) and not self._allows(whole):
            raise self._refusal(pattern)

    def _allows(self, parts: list[str] | None, *, model: bool = False) -> bool:
        allowed = (*self.roots, *self.models, *self.beside) if model else self.roots
        return parts is not None and any(_lies_below(parts, root) for root in allowed)

    def _refusal(self, uri: str, *, model: bool = False) -> OutsideRootsError:
        allowed = (*self.roots, *self.models) if model else self.roots
        return OutsideRootsError(
            f"{uri} lies below none of the folders that requests may read "
            f"({', '.join(allowed)}). Put the files there; or whoever runs this installation "
            "adds their folder to REPRETRAIN_INPUT_ROOTS or names it in a preset."
        )


def _odd_parts(pattern: str) -> str:
    """Return a description of a pattern's part that may leave its folder; empty: there is none."""
    # Skip the empty part before the leading slash, or the two before a bucket's name.
    first = 2 if uris.is_cloud(pattern) else 1
    parts = uris.for_library(pattern).rstrip("/").split("/")[first:]
    if "" in parts:
        return "an empty part"
    if found := {".", ".."} & set(parts):
        return f"the part {min(found)!r}"
    return f"braces other than {PLACEHOLDER}" if {"{", "}"} & set(pattern) else ""


def _parts(uri: str) -> list[str] | None:
    """Return a path's parts with links followed; None if the path is ambiguous.

    Also None if this process cannot resolve it: a link in another process's folder in ``/proc``.
    """
    if not uris.is_cloud(uri):
        try:
            return os.path.realpath(uris.for_library(uri)).rstrip("/").split("/")
        except OSError:
            return None
    parts = uri.rstrip("/").split("/")
    # An object's name may contain these parts; some libraries resolve them like directories.
    return None if {".", ".."} & set(parts) or "" in parts[2:] else parts


def _lies_below(parts: list[str], root: str) -> bool:
    """Return whether a path lies below a root, or matches a root whose last part is a pattern."""
    wanted = _parts(root)
    if wanted is None or len(parts) < len(wanted):
        return False
    is_folder = uris.pattern_folder(wanted[-1]) == wanted[-1]
    return (is_folder or len(parts) == len(wanted)) and all(
        part == name or fnmatch.fnmatchcase(part, name)
        for part, name in zip(parts, wanted, strict=False)
    )


def current() -> RequestRoots | None:
    """Return the roots of the request that this process works for; None: it serves no request."""
    text = os.environ.get(_VARIABLE)
    return None if text is None else RequestRoots(*map(tuple, json.loads(text)))


def variables(roots: RequestRoots) -> dict[str, str]:
    """Return the environment variables that pass the roots to a process."""
    return {_VARIABLE: json.dumps([roots.roots, roots.models, roots.beside])}


@contextmanager
def limited_to(roots: RequestRoots) -> Iterator[None]:
    """Limit this process and its child processes to the roots of a request."""
    before = os.environ.get(_VARIABLE)
    os.environ.update(variables(roots))
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
        if before is not None:
            os.environ[_VARIABLE] = before


def require(uri: str, *, model: bool = False) -> str:
    """Return a path that a request names, after checking it against the roots, if there are any.

    :param model: whether the path names a model or the like rather than text.
    :raises OutsideRootsError: it lies outside the roots.
    """
    if (roots := current()) is not None:
        roots.require(uri, model=model)
    return uri


def allows(uri: str) -> bool:
    """Return whether a path lies below a root, or no roots apply."""
    try:
        require(uri)
    except OutsideRootsError:
        return False
    return True


def pattern_folder(pattern: str) -> str:
    """Return the folder that all matches of a request's pattern lie in.

    :raises OutsideRootsError: the pattern leads outside the roots.
    """
    if (roots := current()) is not None:
        roots.require_pattern(pattern)
    return uris.pattern_folder(pattern)


def glob(pattern: str) -> list[str]:
    """Return the files that a request's pattern matches, like :func:`pipeline_store.uris.glob`.

    :raises OutsideRootsError: the pattern, or one of its matches, leads outside the roots.
    """
    pattern_folder(pattern)
    return [require(uri) for uri in uris.glob(pattern)]


def open_stream(uri: str, *, model: bool = False) -> BinaryIO:
    """Open a file that a request names.

    :param model: whether the file belongs to a model or the like rather than being text.
    :raises OutsideRootsError: the opened file lies outside the roots.
    :raises FileNotFoundError: there is no such file.
    """
    stream = uris.open_stream(require(uri, model=model))
    if not uris.is_cloud(uri):
        require_opened(stream, model=model)
    return stream


def require_opened(stream: BinaryIO, *, model: bool = False) -> None:
    """Require that an opened local file lies below a root; close it if it does not.

    :param model: whether the file belongs to a model or the like rather than being text.
    :raises OutsideRootsError: it does not: a link was replaced after its path was checked.
    """
    if current() is None:
        return
    try:
        # The kernel's own name of the opened file.
        require(os.readlink(f"/proc/self/fd/{stream.fileno()}"), model=model)
    except OutsideRootsError:
        stream.close()
        raise


def read(uri: str, *, model: bool = False) -> bytes:
    """Return the content of a file that a request names; raises as :func:`open_stream`."""
    with open_stream(uri, model=model) as stream:
        return stream.read()


def read_or_none(uri: str, *, model: bool = False) -> bytes | None:
    """Return the content of a file that a request names, or None when there is no such file."""
    try:
        return read(uri, model=model)
    except FileNotFoundError:
        return None


def sha256(uri: str) -> str:
    """Return the hash of a file that a request names; raises as :func:`open_stream`."""
    digest = hashlib.sha256()
    with open_stream(uri) as stream:
        while chunk := stream.read(uris.CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
