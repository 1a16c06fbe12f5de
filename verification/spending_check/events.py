"""A trainers' trace as the events that ``ml-goodput-measurement`` records, and its own sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from verification.chaos.audit import TraceEvent

Entry = dict[str, Any]


@dataclass(frozen=True)
class Process:
    """What one start of the trainer did."""

    events: list[TraceEvent] = field(default_factory=list)

    @property
    def began(self) -> float:
        """Return when the process was made, in epoch seconds."""
        return self.events[0].time

    @property
    def ended(self) -> float:
        """Return when it was seen last."""
        return self.events[-1].time

    def at(self, name: str) -> float | None:
        """Return when an event happened first; None: never."""
        return next((event.time for event in self.events if event.event == name), None)


def processes(trace: Iterable[TraceEvent]) -> list[Process]:
    """Return the starts of the trainer, oldest first."""
    found: dict[tuple[str, int], Process] = {}
    for event in trace:
        found.setdefault((event.token, event.pid), Process()).events.append(event)
    return sorted(found.values(), key=lambda process: process.began)


def overlap(found: list[Process]) -> bool:
    """Return whether two trainers ran at the same time, as after a person cleared the group."""
    return any(later.began < earlier.ended for earlier, later in pairwise(found))


def span(found: list[Process]) -> float:
    """Return the seconds from the first trainer's start to the last event of any."""
    return found[-1].ended - found[0].began if found else 0.0


def step_seconds(found: list[Process]) -> float:
    """Return the seconds of all steps that were done, also of those that were done in vain."""
    return sum(
        later.time - earlier.time
        for process in found
        for earlier, later in pairwise(process.events)
        if (earlier.event, later.event) == ("begin", "step")
    )


def entries(found: list[Process]) -> list[Entry]:
    """Return the log entries that its recorder would have written of the same training."""
    result: list[Entry] = []
    begun = -1
    kept = 0
    is_over = False
    for number, process in enumerate(found):
        start = next((event.step for event in process.events if event.event == "start"), None)
        if number and start is not None and start > begun:
            # It sees a new start by a step that is begun twice. A trainer that ended between two
            # steps had begun none.
            result.append(_step(start, found[number - 1].ended))
        result += _of_process(process)
        if not is_over and process.at("end") is not None:
            # Only once: for it a training's last step goes on until the job's end.
            result.append({"job_end_time": process.events[-2].time})
            is_over = True
        begun = max([begun, *(event.step for event in process.events if event.event == "begin")])
        kept = max([kept, *(event.step for event in process.events if event.event == "commit")])
    if found and not is_over and begun > kept:
        # What no checkpoint has is lost for it only when somebody goes on from the last one.
        ended = found[-1].ended
        result += [{"job_start_time": ended}, _step(kept, ended)]
    return result


def _of_process(process: Process) -> Iterator[Entry]:
    yield {"job_start_time": process.began}
    ready = process.at("restore")
    yield {"training_prep_start_time": process.began}
    yield {"training_prep_end_time": process.ended if ready is None else ready}
    saving = 0.0
    for event, then in zip(process.events, [*process.events[1:], None], strict=True):
        if event.event in ("step", "commit") and then is not None:
            # What a loop does besides steps and checkpoints is no step.
            yield from _besides(event.time, then.time)
        if event.event == "start" and ready is not None:
            yield _restored(event.step, event.time - ready)
        elif event.event == "begin":
            yield _step(event.step, event.time)
        elif event.event == "save":
            saving = event.time
        elif event.event == "commit":
            yield _saved(event.step, event.time - saving)


def _besides(began: float, ended: float) -> Iterator[Entry]:
    kind = {"custom_badput_event_type": "other"}
    yield kind | {"custom_badput_event_start_time": began}
    yield kind | {"custom_badput_event_end_time": ended}


def _step(step: int, time: float) -> Entry:
    return {"step_count": step, "step_start_time": time}


def _saved(step: int, seconds: float) -> Entry:
    return {
        "event_type": "save",
        "step": step,
        "directory": "gs://",
        "wait_for_prev_duration_secs": 0.0,
        "checkpointer_blocking_duration_secs": seconds,
        "get_old_steps_duration_secs": 0.0,
        "checkpoint_manager_blocking_duration_secs": seconds,
    }


def _restored(step: int, seconds: float) -> Entry:
    return {
        "event_type": "restore",
        "step": step,
        "directory": "gs://",
        "checkpointer_duration_secs": seconds,
        "checkpoint_manager_duration_secs": seconds,
    }
