"""Keeps account of what this process spends its time on: each second under one name.

Nothing here reads or writes: :mod:`training.runtime.phases` tells it what happens, and the agent
what it says.
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
    """The account of one process. All seconds since it was made are in it, each once.

    Steps count as kept once a checkpoint has them. A thread that commits one may say so.

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
        """Go on in a phase; what has passed until now is the one before's."""
        with self._lock:
            name = self._name
            # What a loop of steps is surrounded by is no step; one that is done was counted.
            self._add(SpentOn.OTHER if name is SpentOn.STEP else name, self._elapsed())
            self._phase = phase
            self._has_worked = self._has_worked or phase in _WORK

    def looped(self, steps: int, seconds: float, input_wait: float, *, compiled: bool) -> None:
        """Count a loop of steps that is done.

        The first one compiles. How long its steps took besides is known when the next one is done.

        :param seconds: that it took, of which the device waited for its batches for some.
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
        """Count steps of a first loop as those of the checkpoints that have been begun since."""
        for step in self._marked_since_first & self._marks.keys():
            self._marks[step] += seconds
        if self._kept_step in self._marked_since_first:
            self._kept += seconds

    def begins(self, step: int) -> None:
        """Note that training begins or goes on from a step; what was before is done with."""
        with self._lock:
            self._kept = self._seconds[SpentOn.STEP]
            self._kept_step = self._begun_at = self._step = step
            self._marks = {step: self._kept}
            self._marked_since_first = set()

    def saving(self, step: int) -> None:
        """Note that a checkpoint of all steps so far is under way."""
        with self._lock:
            self._marks[step] = self._seconds[SpentOn.STEP]
            if self._first_loop is not None:
                self._marked_since_first.add(step)

    def saved(self, step: int) -> None:
        """Note that the checkpoint of a step is committed."""
        with self._lock:
            mark = self._marks.get(step)
            if mark is not None and mark >= self._kept:
                self._kept, self._kept_step = mark, step

    def went_back(self, step: int) -> None:
        """Note that training went back to a step, and that what came after it is lost."""
        with self._lock:
            kept = self._marks.get(step, 0.0)
            self._move(SpentOn.STEP, SpentOn.LOST_STEPS, self._seconds[SpentOn.STEP] - kept)
            self._kept, self._kept_step, self._step = kept, step, step
            self._marks = {at: mark for at, mark in self._marks.items() if at <= step}

    def told(self) -> JobTime:
        """Return the account up to the last thing that was counted, and what goes on since."""
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
        """Return the seconds that are not counted yet; the caller counts them."""
        now = self._clock()
        elapsed, self._last = now - self._last, now
        return elapsed

    def _add(self, name: SpentOn, seconds: float) -> None:
        self._seconds[name] += seconds

    def _move(self, source: SpentOn, target: SpentOn, seconds: float) -> float:
        """Return how much of that there was to move."""
        moved = max(0.0, min(seconds, self._seconds[source]))
        self._seconds[source] -= moved
        self._seconds[target] += moved
        return moved
