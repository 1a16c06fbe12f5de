"""Starts the parts in dependency order and waits until each is healthy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from local.stack.parts import Part
from local.stack.paths import StackError, StatePaths
from local.stack.supervision import PartProcess, Supervisor


def last_lines(log: Path, count: int) -> str:
    """Return the last lines of a log, or a remark that it is missing or empty."""
    try:
        with log.open(errors="replace") as lines:
            return "".join(deque(lines, maxlen=count)) or "(the log is empty)"
    except FileNotFoundError:
        return "(there is no log)"


POLL_SECONDS = 0.4
LOG_LINES = 25


class Startup:
    """One start of all parts.

    :param parts: the parts; each is started when those it needs are ready.
    :param supervisor: runs the processes.
    :param problem: returns the problem of a part, or None if it is healthy.
    :param paths: for the log files.
    :param say: receives one line per part that is ready.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        supervisor: Supervisor,
        problem: Callable[[str, PartProcess], str | None],
        paths: StatePaths,
        say: Callable[[str], None],
    ) -> None:
        self._parts = parts
        self._supervisor = supervisor
        self._problem = problem
        self._paths = paths
        self._say = say
        self._begun: dict[str, float] = {}
        self._ready: set[str] = set()

    def run(self, seconds: float) -> None:
        """Start all parts and wait until they are healthy.

        :param seconds: maximum seconds for that.
        :raises StackError: a part died or is not ready in time; its last log lines are in the
            message.
        """
        deadline = time.monotonic() + seconds
        while len(self._ready) < len(self._parts):
            self._begin_possible()
            found = self._supervisor.processes()
            for name in self._begun.keys() - self._ready:
                self._look_at(name, found[name], deadline)
            time.sleep(POLL_SECONDS)

    def _begin_possible(self) -> None:
        for part in self._parts:
            if part.name not in self._begun and self._ready.issuperset(part.needs):
                self._supervisor.start(part)
                self._begun[part.name] = time.monotonic()

    def _look_at(self, name: str, process: PartProcess, deadline: float) -> None:
        problem = self._problem(name, process)
        if problem is None:
            self._ready.add(name)
            self._say(f"  {name:<14} ready after {time.monotonic() - self._begun[name]:4.1f} s")
        elif process.died or time.monotonic() > deadline:
            log = self._paths.log(name)
            reason = "died" if process.died else f"is not ready in time ({problem})"
            raise StackError(
                f"{name} {reason}. The last lines of {log}:\n{last_lines(log, LOG_LINES)}"
            )
