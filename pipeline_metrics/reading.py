"""Reads a store repeatedly: unchanging files only once; damaged files are counted and skipped."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from typing import Any, TypeVar

from pipeline_store.formats import StoredFile

log = logging.getLogger(__name__)

F = TypeVar("F", bound=StoredFile)
T = TypeVar("T")


class Source(StrEnum):
    """The purpose of reading a file, to which its errors are counted; values of a label."""

    RUNS = "runs"
    TPUS = "tpus"
    SPENDING = "spending"
    DATA = "data"
    LINEAGES = "lineages"
    MODELS = "models"
    ARRIVALS = "arrivals"
    WATCH = "watch"
    REAPER = "reaper"
    ALERTS = "alerts"


class Reader:
    """A caching reader for the passes of one exporter.

    :ivar errors: number of failed reads since the exporter started, by source.
    :ivar failures: number of failed reads of the current or last pass, by source.
    """

    def __init__(self) -> None:
        self.errors = dict.fromkeys(Source, 0)
        self.failures = dict.fromkeys(Source, 0)
        self._kept: dict[Hashable, tuple[float, Any]] = {}
        self._used: set[Hashable] = set()

    def begin(self) -> None:
        """Begin a pass, and drop what the last pass did not use, if that pass could read all."""
        if not any(self.failures.values()):
            self._kept = {key: kept for key, kept in self._kept.items() if key in self._used}
        self.failures = dict.fromkeys(Source, 0)
        self._used = set()

    def attempt(self, source: Source, read: Callable[[], T]) -> T | None:
        """Return a function's result; None, and count an error, when it fails."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - each kind of store has its own
            # One bad file must not cost the scrape of all others.
            self.failed(source, [str(error)])
            return None

    def newest(self, source: Source, key: Hashable, read: Callable[[], T]) -> T | None:
        """Return a function's result, or its last one when it fails; None: it never succeeded."""
        self._used.add(key)
        found = self.attempt(source, read)
        if found is not None:
            self._kept[key] = (time.monotonic(), found)
        elif key in self._kept:
            found = self._kept[key][1]
        return found

    def failed(self, source: Source, problems: Iterable[str]) -> None:
        """Count and log read problems."""
        for problem in problems:
            log.warning("Cannot be read, for metrics of %s: %s", source, problem)
            self.errors[source] += 1
            self.failures[source] += 1

    def kept(self, key: Hashable, read: Callable[[], T], *, seconds: float = math.inf) -> T:
        """Return a function's cached result for a key, or call it and cache the result.

        :param key: all that the result depends on; a result of None is cached, too.
        :param seconds: time after which the result is read again.
        """
        self._used.add(key)
        known = self._kept.get(key)
        if known is None or time.monotonic() - known[0] >= seconds:
            known = self._kept[key] = (time.monotonic(), read())
        value: T = known[1]
        return value

    def forget(self, key: Hashable) -> None:
        """Drop a key from the cache."""
        self._kept.pop(key, None)

    def is_kept(self, key: Hashable) -> bool:
        """Return whether a key is cached, and mark it as used."""
        self._used.add(key)
        return key in self._kept

    def unchanging(self, source: Source, kind: type[F], uri: str) -> F | None:
        """Return a file that never changes once it exists; None: missing or unreadable."""
        if not self.is_kept(uri):
            found = self.load(source, kind, uri)
            if found is None:
                return None
            self._kept[uri] = (time.monotonic(), found)
        value: F = self._kept[uri][1]
        return value

    def load(self, source: Source, kind: type[F], uri: str) -> F | None:
        """Return a file that may change; None: missing or unreadable."""
        return self.attempt(source, lambda: kind.load_or_none(uri))
