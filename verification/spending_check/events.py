"""Converts a trainers' trace into the log entries of ``ml-goodput-measurement``, and sums it up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from verification.chaos.audit import ALIVE, TraceEvent

Entry = dict[str, Any]

FIRST = 1
"""Number passed to the calculator for step 0: for a start that goes back to 0 it counts no loss."""


@dataclass(frozen=True)
class Process:
    """The events of one start of the trainer.

    :param seen: times of all its events and heartbeats, in epoch seconds.
    """

    events: list[TraceEvent] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)

    @property
    def began(self) -> float:
        """Return when the process was created, in epoch seconds."""
        return self.events[0].time

    @property
    def ended(self) -> float:
        """Return when it was last seen, in epoch seconds."""
        return max(self.seen)

    def at(self, name: str) -> float | None:
        """Return when an event first happened; None: never."""
        return next((event.time for event in self.events if event.event == name), None)

    def lasting(self) -> Iterable[tuple[TraceEvent, TraceEvent | None, float]]:
        """Yield each event with the next one, if any, and the seconds until that or the end."""
        for event, then in zip(self.events, [*self.events[1:], None], strict=True):
            yield event, then, max(0.0, (then.time if then else self.ended) - event.time)

    def count(self, name: str) -> int:
        """Return how often an event happened."""
        return sum(event.event == name for event in self.events)

    @property
    def only_loop(self) -> float:
        """Return the seconds of its only step; 0 if it finished more than one."""
        if self.count("step") > 1:
            return 0.0
        return next((seconds for one, _, seconds in self.lasting() if one.event == "begin"), 0.0)


def processes(trace: Iterable[TraceEvent]) -> list[Process]:
    """Return the starts of the trainer, oldest first."""
    found: dict[tuple[str, int], Process] = {}
    for event in trace:
        process = found.setdefault((event.token, event.pid), Process())
        process.seen.append(event.time)
        if event.event != ALIVE:
            process.events.append(event)
    told = [process for process in found.values() if process.events]
    return sorted(told, key=lambda process: process.began)


def overlap(found: list[Process]) -> bool:
    """Return whether two trainers ran at once, as can happen after a person cleared the group."""
    return any(later.began < earlier.ended for earlier, later in pairwise(found))


def span(found: list[Process]) -> float:
    """Return the seconds from the first trainer's start to the last event of any."""
    return found[-1].ended - found[0].began if found else 0.0


def step_seconds(found: list[Process]) -> float:
    """Return the seconds of all steps that were begun, including those that were lost."""
    return sum(
        seconds
        for process in found
        for event, _, seconds in process.lasting()
        if event.event == "begin"
    )


def only_loops(found: list[Process]) -> float:
    """Return the seconds of first steps whose process did no other step.

    With nothing to compare them with, our bill counts them entirely as compilation.
    """
    return sum(process.only_loop for process in found)


def unfinished_saves(found: list[Process]) -> float:
    """Return the seconds of checkpoints that were never committed."""
    return sum(
        seconds
        for process in found
        for event, then, seconds in process.lasting()
        if event.event == "save" and (then is None or then.event != "commit")
    )


def entries(found: list[Process]) -> list[Entry]:
    """Return the log entries that the library's recorder would have written for the same training.

    The log's clock stands still while a trainer does something the library has no name for, or is
    not running: the calculator would count time between lost steps as lost steps, and subtracts
    time between other steps only if it has a name. The times of :func:`only_loops` and
    :func:`unfinished_saves`, which the calculator names differently from the bill, are left out
    too.
    """
    if not found:
        return []
    log = _Log(found[0].began)
    for process in found:
        log.add(process)
    return log.closed()


_PARTS = {
    "save": (
        "checkpointer_blocking_duration_secs",
        "checkpoint_manager_blocking_duration_secs",
    ),
    "restore": ("checkpointer_duration_secs", "checkpoint_manager_duration_secs"),
}
_NO_PART = {"wait_for_prev_duration_secs": 0.0, "get_old_steps_duration_secs": 0.0}


class _Log:
    def __init__(self, began: float) -> None:
        self._now = began
        self._entries: list[Entry] = []
        self._left = began
        """When the previous process was last seen."""
        self._reached = -1
        """Newest step that the calculator knows to have begun."""
        self._kept = 0
        self._checkpoints = 0

    def add(self, process: Process) -> None:
        """Add the events of one process."""
        self._entries.append({"job_start_time": self._now})
        cut = process.only_loop
        for event, then, seconds in process.lasting():
            if event.event == "process":
                self._prepared(seconds)
            elif event.event == "restore":
                self._lasts("restore", seconds)
            elif event.event == "start":
                self._goes_on(event.step)
            elif event.event == "begin":
                self._step(event.step, self._now)
                self._now += max(0.0, seconds - cut)
                self._reached, cut = event.step + 1, 0.0
            elif event.event == "save" and then is not None and then.event == "commit":
                self._lasts("save", seconds)
            elif event.event == "commit":
                self._kept = max(self._kept, event.step)
        if process.count("begin"):
            # The calculator takes the beginning of the next step for the end of a step.
            self._step(self._reached, self._now)
        self._left = self._now

    def closed(self) -> list[Entry]:
        """Return all entries, with the steps lost at the end and the end of the job."""
        if self._reached > self._kept:
            # The calculator counts uncommitted steps as lost only when training resumes.
            self._entries.append({"job_start_time": self._now})
            self._step(self._kept, self._now)
        return [*self._entries, {"job_end_time": self._now}]

    def _prepared(self, seconds: float) -> None:
        self._entries.append({"training_prep_start_time": self._now})
        self._now += seconds
        self._entries.append({"training_prep_end_time": self._now})

    def _goes_on(self, step: int) -> None:
        if step > self._reached >= 0:
            # A checkpoint of steps of which nothing else is known: the calculator detects a new
            # start by a step that is begun twice.
            self._step(step, self._left)
        self._kept = step

    def _lasts(self, kind: str, seconds: float) -> None:
        """Add a save or restore of a checkpoint."""
        # Numbered consecutively and not by step: the calculator keeps one entry per number.
        self._checkpoints += 1
        entry = {"event_type": kind, "step": self._checkpoints, "directory": "gs://"}
        self._entries.append(entry | dict.fromkeys(_PARTS[kind], seconds) | _NO_PART)
        self._now += seconds

    def _step(self, step: int, time: float) -> None:
        self._entries.append({"step_count": step + FIRST, "step_start_time": time})
