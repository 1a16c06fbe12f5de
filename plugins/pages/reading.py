"""Reads files of the store for a page: missing files are left out, damaged ones are reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pipeline_store.formats import FormatError, StoredFile

F = TypeVar("F", bound=StoredFile)
T = TypeVar("T")

_PARALLEL_READS = 16


class Reader:
    """A reader of files that collects their problems for the page to show."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def load(self, kind: type[F], uri: str) -> F | None:
        """Return a file's content; None when it is missing or damaged."""
        return self.attempt(lambda: kind.load_or_none(uri))

    def load_all(self, kind: type[F], places: Sequence[str]) -> list[F | None]:
        """Return the result of :meth:`load` for each file, read in parallel."""
        readers = [Reader() for _ in places]
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = list(pool.map(lambda reader, uri: reader.load(kind, uri), readers, places))
        # In the order of the files, not in the order in which they were read.
        self.problems += [problem for reader in readers for problem in reader.problems]
        return found

    def attempt(self, read: Callable[[], T | None]) -> T | None:
        """Return a function's result; None, and a line on the page, when it fails."""
        try:
            return read()
        except (FormatError, ValueError, OSError, RuntimeError) as error:
            # RuntimeError: the registry's own, such as a version without its record.
            self.problems.append(str(error))
            return None
