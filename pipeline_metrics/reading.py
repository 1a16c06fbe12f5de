"""Reads a store again and again: what cannot change is read once, what is damaged costs itself."""

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
    """What a file that cannot be read was read for; a label's values."""

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
    """Reads for one exporter, pass after pass.

    :ivar errors: what could not be read since the exporter began, by source.
    :ivar failures: the same of the pass that is under way, or of the last one.
    """

    def __init__(self) -> None:
        self.errors = dict.fromkeys(Source, 0)
        self.failures = dict.fromkeys(Source, 0)
        self._kept: dict[Hashable, tuple[float, Any]] = {}
        self._used: set[Hashable] = set()

    def begin(self) -> None:
        """Begin a pass, and forget what the one before had no use for, if it could read all."""
        if not any(self.failures.values()):
            self._kept = {key: kept for key, kept in self._kept.items() if key in self._used}
        self.failures = dict.fromkeys(Source, 0)
        self._used = set()

    def attempt(self, source: Source, read: Callable[[], T]) -> T | None:
        """Return what a function reads; None, and one error more, when it cannot."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - each kind of store has its own
            # Whatever is wrong with one file, all others are still worth a scrape.
            self.failed(source, [str(error)])
            return None

    def newest(self, source: Source, key: Hashable, read: Callable[[], T]) -> T | None:
        """Return what a function reads, or when it cannot what it last did; None: it never did."""
        self._used.add(key)
        found = self.attempt(source, read)
        if found is not None:
            self._kept[key] = (time.monotonic(), found)
        elif key in self._kept:
            found = self._kept[key][1]
        return found

    def failed(self, source: Source, problems: Iterable[str]) -> None:
        """Count what could not be read, and say it in the log."""
        for problem in problems:
            log.warning("Cannot be read, for metrics of %s: %s", source, problem)
            self.errors[source] += 1
            self.failures[source] += 1

    def kept(self, key: Hashable, read: Callable[[], T], *, seconds: float = math.inf) -> T:
        """Return what a function read before under this key, or reads now.

        :param key: all that the answer depends on, also that there is nothing.
        :param seconds: after which it is read anew.
        """
        self._used.add(key)
        known = self._kept.get(key)
        if known is None or time.monotonic() - known[0] >= seconds:
            known = self._kept[key] = (time.monotonic(), read())
        value: T = known[1]
        return value

    def forget(self, key: Hashable) -> None:
        """Keep nothing under a key any more."""
        self._kept.pop(key, None)

    def is_kept(self, key: Hashable) -> bool:
        """Return whether something is kept under a key, and go on keeping it."""
        self._used.add(key)
        return key in self._kept

    def unchanging(self, source: Source, kind: type[F], uri: str) -> F | None:
        """Return a file that never changes once it is there; None: absent, or not readable."""
        if not self.is_kept(uri):
            found = self.load(source, kind, uri)
            if found is None:
                return None
            self._kept[uri] = (time.monotonic(), found)
        value: F = self._kept[uri][1]
        return value

    def load(self, source: Source, kind: type[F], uri: str) -> F | None:
        """Return a file that changes; None: absent, or not readable."""
        return self.attempt(source, lambda: kind.load_or_none(uri))
