"""Where the files may lie that a request names: the form, REST, a backfill, a task's description.

Whoever may trigger a run chooses paths, and the run reads them with the rights of the Airflow
worker. Without a border that is every file of the worker, its passwords among them. The border is
made of roots, folders that the installation names (``REPRETRAIN_INPUT_ROOTS``), and holds three
times: for the path or pattern as it is written, for each file that a pattern matches, with links
followed, and for the file that was opened, as a link can be replaced between two looks.

A process that works for a request is told its roots by :func:`limited_to`, and so are the processes
that it starts, through the environment. A command that a person runs has no roots: the rights of
that person are the border.
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
"""Models that were put into use, with their vocabularies: another lineage may begin with one."""

DESCRIPTIONS = ("tasks/*/task.toml", "tasks/*/text_to_text.toml")
"""What says of a labelled task which files it has; those have to lie below the other roots."""

PLACEHOLDER = "{partition}"
"""Where the id of a partition stands in ``corpus.input_pattern``."""

_VARIABLE = "REPRETRAIN_REQUEST_ROOTS"


class OutsideRootsError(ValueError):
    """A request names a file that lies below none of the roots."""


@dataclass(frozen=True)
class RequestRoots:
    """The folders below which a request may name files.

    :ivar roots: absolute paths or ``gs://`` URIs of folders or single files; or patterns, each of
        which allows just the files that it matches.
    :ivar models: the same, for what is no text: models, vocabularies, descriptions of tasks.
    :ivar beside: single files and patterns, also for these only, that messages do not name.
    """

    roots: tuple[str, ...]
    models: tuple[str, ...]
    beside: tuple[str, ...] = ()

    @classmethod
    def of(cls, store_root: str, roots: Sequence[str], beside: Sequence[str] = ()) -> RequestRoots:
        """Return the roots; relative ones lie below the store.

        :raises ValueError: one has a ``..`` or a scheme that no store has.
        """

        def absolute(paths: Sequence[str]) -> tuple[str, ...]:
            found = (p if uris.is_absolute(p) else uris.join(store_root, p) for p in paths)
            return tuple(dict.fromkeys(map(uris.for_library, found)))

        return cls(absolute(roots), absolute([PUBLISHED]), absolute([*DESCRIPTIONS, *beside]))

    def require(self, uri: str, *, model: bool = False) -> None:
        """Return if a path, links followed, names a file or folder below a root.

        :param uri: absolute; a ``*`` in it is a letter as any other.
        :param model: whether it is to be a model or the like, and no text.
        :raises OutsideRootsError: it names another. Nothing is said of what lies there.
        """
        if not self._allows(_parts(uri), model=model):
            raise self._refusal(uri, model=model)

    def require_pattern(self, pattern: str) -> None:
        """Return if a pattern, links followed, can only match files below a root.

        :param pattern: absolute; may hold ``*``, ``?``, ``[...]`` and ``{partition}``.
        :raises OutsideRootsError: it can match others, or it has parts that lead elsewhere.
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
    """Return what a pattern has that may lead out of its folder, whatever is matched before it."""
    # Before them come the root of this machine, or the two that make a bucket.
    first = 2 if uris.is_cloud(pattern) else 1
    parts = uris.for_library(pattern).rstrip("/").split("/")[first:]
    if "" in parts:
        return "an empty part"
    if found := {".", ".."} & set(parts):
        return f"the part {min(found)!r}"
    return f"braces other than {PLACEHOLDER}" if {"{", "}"} & set(pattern) else ""


def _parts(uri: str) -> list[str] | None:
    """Return a path's parts with links followed; None where it has no plain meaning.

    Or none to this process: a link of another process's folder that it may not look at.
    """
    if not uris.is_cloud(uri):
        try:
            return os.path.realpath(uris.for_library(uri)).rstrip("/").split("/")
        except OSError:
            return None
    parts = uri.rstrip("/").split("/")
    # An object's name may hold these; some libraries take them for the folder above.
    return None if {".", ".."} & set(parts) or "" in parts[2:] else parts


def _lies_below(parts: list[str], root: str) -> bool:
    """Return whether parts begin with those of a root; if its last is a pattern, are those."""
    wanted = _parts(root)
    if wanted is None or len(parts) < len(wanted):
        return False
    is_folder = uris.pattern_folder(wanted[-1]) == wanted[-1]
    return (is_folder or len(parts) == len(wanted)) and all(
        part == name or fnmatch.fnmatchcase(part, name)
        for part, name in zip(parts, wanted, strict=False)
    )


def current() -> RequestRoots | None:
    """Return the roots of the request that this process works for; None: it is a person's."""
    text = os.environ.get(_VARIABLE)
    return None if text is None else RequestRoots(*map(tuple, json.loads(text)))


def variables(roots: RequestRoots) -> dict[str, str]:
    """Return the environment that tells a process its roots."""
    return {_VARIABLE: json.dumps([roots.roots, roots.models, roots.beside])}


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

    :param model: whether it is to be a model or the like, and no text.
    :raises OutsideRootsError: it lies below none of the roots that there are.
    """
    if (roots := current()) is not None:
        roots.require(uri, model=model)
    return uri


def allows(uri: str) -> bool:
    """Return whether a path lies below a root, or there are none."""
    try:
        require(uri)
    except OutsideRootsError:
        return False
    return True


def pattern_folder(pattern: str) -> str:
    """Return the folder that all matches of a request's pattern lie in.

    :raises OutsideRootsError: the pattern leads out of the roots.
    """
    if (roots := current()) is not None:
        roots.require_pattern(pattern)
    return uris.pattern_folder(pattern)


def glob(pattern: str) -> list[str]:
    """Return the files that a request's pattern matches, as :func:`pipeline_store.uris.glob`.

    :raises OutsideRootsError: the pattern, or one of its matches, leads out of the roots.
    """
    pattern_folder(pattern)
    return [require(uri) for uri in uris.glob(pattern)]


def open_stream(uri: str, *, model: bool = False) -> BinaryIO:
    """Open a file that a request names.

    :param model: whether it is to be of a model or the like, and no text.
    :raises OutsideRootsError: what was opened lies below none of the roots.
    :raises FileNotFoundError: there is none.
    """
    stream = uris.open_stream(require(uri, model=model))
    if not uris.is_cloud(uri):
        require_opened(stream, model=model)
    return stream


def require_opened(stream: BinaryIO, *, model: bool = False) -> None:
    """Close a file of this machine that turns out to lie outside of the roots.

    :param model: whether it is to be of a model or the like, and no text.
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


def read_or_none(uri: str, *, model: bool = False) -> bytes | None:
    """Return a file that a request names, or None when there is none."""
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
