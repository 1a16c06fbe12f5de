"""Accounts for the time of this process: each second under one name.

Nothing here reads or writes files: :mod:`training.runtime.phases` reports events to it and writes
the account for the agent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from pipeline_store.formats import JobTime, PhaseName, SpentOn

_NAMES = {
    PhaseName.DATA: SpentOn.TRAINING_PREP,
    PhaseName.RESTORE: SpentOn.RESTORE,
    PhaseName.FIRST_LOOP: SpentOn.COMPILE,
    PhaseName.LOOP: SpentOn.STEP,
    PhaseName.SAVE: SpentOn.SAVE,
    PhaseName.EVALUATION: SpentOn.EVALUATION,
    PhaseName.MEETING: SpentOn.MEETING,
    PhaseName.LENDING: SpentOn.MEETING,
}
_WORK = (PhaseName.LOOP, PhaseName.FIRST_LOOP, PhaseName.EVALUATION)


class TimeSheet:
    """The time account of one process. It counts every second since it was created once.

    Steps count as kept once a checkpoint contains them. A thread that commits one may report it.

    :param clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._last = clock()
        self._phase = PhaseName.OTHER
        self._seconds = dict.fromkeys(SpentOn, 0.0)
        self._has_worked = False
        self._first_loop: tuple[float, int] | None = None
        self._marks: dict[int, float] = {}
        self._kept = 0.0
        self._kept_step: int | None = None
        self._begun_at: int | None = None
        self._step: int | None = None
        self._marked_since_first: set[int] = set()

    def enter(self, phase: PhaseName) -> None:
        """Enter a phase; the time until now belongs to the previous one."""
        with self._lock:
            name = self._name
            # The time around a loop of steps is no step time; completed loops are counted already.
            self._add(SpentOn.OTHER if name is SpentOn.STEP else name, self._elapsed())
            self._phase = phase
            self._has_worked = self._has_worked or phase in _WORK

    def looped(self, steps: int, seconds: float, input_wait: float, *, compiled: bool) -> None:
        """Count a completed loop of steps.

        The first loop compiles. How much of its time its steps took is known when the next loop is
        completed.

        :param seconds: duration of the loop, including ``input_wait``.
        :param input_wait: seconds in which the device waited for its batches.
        """
        with self._lock:
            if self._step is not None:
                self._step += steps
            if compiled:
                self._first_loop = (seconds - input_wait, steps)
                self._marked_since_first = set()
                return
            elapsed = self._elapsed()
            waited = min(input_wait, elapsed)
            stepped = min(max(0.0, seconds - waited), elapsed - waited)
            self._add(SpentOn.STEP, stepped)
            self._add(SpentOn.DATA_LOADING, waited)
            self._add(SpentOn.OTHER, elapsed - stepped - waited)
            if self._first_loop is not None:
                longest, first_steps = self._first_loop
                self._first_loop = None
                first = self._move(
                    SpentOn.COMPILE, SpentOn.STEP, min(longest, stepped / steps * first_steps)
                )
                self._raise_marks(first)

    def _raise_marks(self, seconds: float) -> None:
        """Add a first loop's step time to the checkpoints that were begun since."""
        for step in self._marked_since_first & self._marks.keys():
            self._marks[step] += seconds
        if self._kept_step in self._marked_since_first:
            self._kept += seconds

    def begins(self, step: int) -> None:
        """Record that training starts or resumes at a step; earlier steps count as kept."""
        with self._lock:
            self._kept = self._seconds[SpentOn.STEP]
            self._kept_step = self._begun_at = self._step = step
            self._marks = {step: self._kept}
            self._marked_since_first = set()

    def saving(self, step: int) -> None:
        """Record that a checkpoint of all steps so far is being saved."""
        with self._lock:
            self._marks[step] = self._seconds[SpentOn.STEP]
            if self._first_loop is not None:
                self._marked_since_first.add(step)

    def saved(self, step: int) -> None:
        """Record that the checkpoint of a step is committed."""
        with self._lock:
            mark = self._marks.get(step)
            if mark is not None and mark >= self._kept:
                self._kept, self._kept_step = mark, step

    def went_back(self, step: int) -> None:
        """Record that training rolled back to a step and lost the steps after it."""
        with self._lock:
            kept = self._marks.get(step, 0.0)
            self._move(SpentOn.STEP, SpentOn.LOST_STEPS, self._seconds[SpentOn.STEP] - kept)
            self._kept, self._kept_step, self._step = kept, step, step
            self._marks = {at: mark for at, mark in self._marks.items() if at <= step}

    def told(self) -> JobTime:
        """Return the account up to the last counted event, and the current activity."""
        with self._lock:
            since = self._clock() - self._last
            done, least = self._seconds[SpentOn.STEP], self._kept_step or 0
            return JobTime(
                told=datetime.fromtimestamp(time.time() - since, UTC),
                now=self._name,
                seconds={name: value for name, value in self._seconds.items() if value},
                unsaved_seconds=max(0.0, done - self._kept),
                unsaved_after={
                    step: max(0.0, done - mark)
                    for step, mark in self._marks.items()
                    if step >= least
                },
                begun_at=self._begun_at,
                last_step=self._step,
            )

    @property
    def _name(self) -> SpentOn:
        if self._phase is PhaseName.OTHER:
            return SpentOn.OTHER if self._has_worked else SpentOn.PROGRAM_STARTUP
        return _NAMES[self._phase]

    def _elapsed(self) -> float:
        """Return the seconds since the last counted event; the caller must count them."""
        now = self._clock()
        elapsed, self._last = now - self._last, now
        return elapsed

    def _add(self, name: SpentOn, seconds: float) -> None:
        self._seconds[name] += seconds

    def _move(self, source: SpentOn, target: SpentOn, seconds: float) -> float:
        """Move up to ``seconds`` from one name to another; return how many were moved."""
        moved = max(0.0, min(seconds, self._seconds[source]))
        self._seconds[source] -= moved
        self._seconds[target] += moved
        return moved
