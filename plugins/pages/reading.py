"""Reads files of the store for a page: what is absent is left out, what is damaged is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pipeline_store.formats import FormatError, StoredFile

F = TypeVar("F", bound=StoredFile)
T = TypeVar("T")

_PARALLEL_READS = 16


class Reader:
    """Reads files and keeps what was wrong with them, for the page to show."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def load(self, kind: type[F], uri: str) -> F | None:
        """Return a file's content; None when it is absent or damaged."""
        return self.attempt(lambda: kind.load_or_none(uri))

    def load_all(self, kind: type[F], places: Sequence[str]) -> list[F | None]:
        """Return what :meth:`load` does of each file, all read at once."""
        readers = [Reader() for _ in places]
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = list(pool.map(lambda reader, uri: reader.load(kind, uri), readers, places))
        # In the order of the files, whichever was there first.
        self.problems += [problem for reader in readers for problem in reader.problems]
        return found

    def attempt(self, read: Callable[[], T | None]) -> T | None:
        """Return what a function reads; None, and a line on the page, when it cannot."""
        try:
            return read()
        except (FormatError, ValueError, OSError, RuntimeError) as error:
            # RuntimeError: the registry's own, such as a version without its record.
            self.problems.append(str(error))
            return None
