"""Reports this job's current phase, so that the agent can tell a hung job from a slow one.

The agent names a file for the phase, which is replaced at each change, and another one for the
time account. Only the main thread changes the phase: the others work for it, and it waits for them.
Nothing here needs TensorFlow.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from pipeline_store.formats import JobPhase, PhaseName
from training.runtime.job_time import TimeSheet

PHASE_FILE = "REPRETRAIN_PHASE_FILE"
"""Environment variable that names the file of the phase; without it none is written."""

TIME_FILE = "REPRETRAIN_TIME_FILE"
"""Environment variable that names the file of the time account; without it none is written."""

LEAST_SECONDS = 0.1
"""Shortest time between two writes of a changing count: the agent does not poll more often."""

LAST_LOOPS = 20

Item = TypeVar("Item")


class _Teller:
    """The current phase, the phases around it, and the time account."""

    def __init__(self) -> None:
        self._names: list[PhaseName] = []
        self._now = JobPhase(name=PhaseName.OTHER, entered=datetime.now(UTC))
        self._written = 0.0
        self._loops: deque[float] = deque(maxlen=LAST_LOOPS)
        self._slowest: float | None = None
        self.sheet = TimeSheet()
        self._account = threading.Lock()

    def enter(self, name: PhaseName) -> None:
        self._names.append(name)
        self._begin()

    def leave(self) -> None:
        self._names.pop()
        self._begin()

    def looped(self, seconds: float, *, compiled: bool) -> None:
        if compiled:
            self._loops.clear()
            self._slowest = seconds
        else:
            self._loops.append(seconds)
            self._slowest = max(self._loops)
        self.move()

    def move(self) -> None:
        moved = {"count": self._now.count + 1, "slowest_loop_seconds": self._slowest}
        self._now = self._now.model_copy(update=moved)
        if time.monotonic() - self._written >= LEAST_SECONDS:
            self._write()

    def _begin(self) -> None:
        name = self._names[-1] if self._names else PhaseName.OTHER
        self._now = JobPhase(
            name=name, entered=datetime.now(UTC), slowest_loop_seconds=self._slowest
        )
        self.sheet.enter(name)
        self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        write_for_agent(PHASE_FILE, self._now)
        self.write_account()

    def write_account(self) -> None:
        with self._account:
            write_for_agent(TIME_FILE, self.sheet.told())


_teller = _Teller()


@contextmanager
def phase(name: PhaseName) -> Iterator[None]:
    """Enter a phase for the duration of the block; afterwards the outer phase begins anew."""
    if not _has_a_say():
        yield
        return
    _teller.enter(name)
    try:
        yield
    finally:
        _teller.leave()


def move() -> None:
    """Report progress within the phase."""
    if _has_a_say():
        _teller.move()


def looped(steps: int, seconds: float, *, compiled: bool, input_wait: float = 0.0) -> None:
    """Report a completed loop of steps and its duration.

    :param compiled: it was the first loop of its shape, so its duration says little about the next.
    :param input_wait: those of ``seconds`` in which a device had nothing to compute.
    """
    if _has_a_say():
        _teller.sheet.looped(steps, seconds, input_wait, compiled=compiled)
        _teller.looped(seconds, compiled=compiled)


def begins(step: int) -> None:
    """Report that training starts or resumes at a step; earlier steps count as kept."""
    _teller.sheet.begins(step)


def saving(step: int) -> None:
    """Report that a checkpoint of all steps so far is being saved."""
    _teller.sheet.saving(step)


def saved(step: int) -> None:
    """Report that the checkpoint of a step is committed; any thread may call this."""
    _teller.sheet.saved(step)
    # At once: if the process is killed before its next report, these steps are not lost.
    _teller.write_account()


def went_back(step: int) -> None:
    """Report that training rolled back to a step and lost the steps after it."""
    _teller.sheet.went_back(step)


def each(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, reporting progress after the consumer is done with each."""
    for item in items:
        yield item
        move()


def write_for_agent(variable: str, content: BaseModel) -> None:
    """Replace the file that an environment variable names; do nothing if it is not set.

    :raises OSError: the disk is full.
    """
    path = os.environ.get(variable)
    if path is not None:
        aside = Path(f"{path}.aside")
        aside.write_text(content.model_dump_json())
        aside.replace(path)


def _has_a_say() -> bool:
    return threading.current_thread() is threading.main_thread()
