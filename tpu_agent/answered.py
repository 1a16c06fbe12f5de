"""Whether the store answers, and for how long it did not, by the agent's own questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SLOW_SECONDS = 10.0
"""A question that takes longer counts as not answered meanwhile."""


class Answered:
    """Takes note of questions, one after the other, and of their ends; safe between threads.

    From the last answer before a failure to the next answer the store was away: when exactly it
    went nobody knows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = clock()
        self._asked: float | None = None
        self._has_failed = False
        self._away = 0.0
        self.last_asked = self._answered
        """When the question was asked that was answered last."""

    def ask(self) -> None:
        """Take note that a question is asked."""
        with self._lock:
            self._asked = self._clock()

    def answer(self) -> None:
        """Take note that it was answered."""
        with self._lock:
            self._away += self._open()
            self.last_asked = self._asked if self._asked is not None else self._clock()
            self._answered, self._asked, self._has_failed = self._clock(), None, False

    def fail(self) -> None:
        """Take note that it was not."""
        with self._lock:
            self._asked, self._has_failed = None, True

    def away(self) -> float:
        """Return for how many seconds the store was away so far; grows also in hindsight."""
        with self._lock:
            return self._away + self._open()

    def _open(self) -> float:
        now = self._clock()
        is_slow = self._asked is not None and now - self._asked > SLOW_SECONDS
        return now - self._answered if self._has_failed or is_slow else 0.0
