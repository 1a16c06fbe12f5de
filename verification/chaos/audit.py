"""Checks of what must hold when a run is over, whatever its outcome."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PERSON = "person"
"""Kind of a failure that a person caused on purpose."""


ALIVE = "alive"
"""Heartbeat event of a process: the last one tells when it was killed."""


@dataclass(frozen=True)
class TraceEvent:
    """One line of the trainers' trace."""

    pid: int
    event: str
    step: int
    time: float = 0.0
    token: str = ""


def read_trace(path: Path) -> list[TraceEvent]:
    """Return the events of the trainers' trace, in order."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [TraceEvent(**line) for line in lines]


def steps_lost(events: list[TraceEvent]) -> list[int]:
    """Return for each resumption how many finished steps had to be repeated."""
    lost = []
    furthest = 0
    for event in events:
        if event.event == "start":
            lost.append(max(0, furthest - event.step))
            # The steps in between are about to be repeated: each is lost once.
            furthest = event.step
        elif event.event == "step":
            furthest = max(furthest, event.step)
    return lost[1:]


def is_clear(failure: dict[str, Any]) -> bool:
    """Return whether a failure has a kind: caused by a person, or one of the operators' kinds.

    Those are ``operators.tpu_failures.FailureKind``. Any other exception that ends a task, and a
    task whose tries were all killed, is not clear.
    """
    return bool(failure.get("kind"))


@dataclass
class Report:
    """The result of one schedule; ``problems`` is empty if everything holds that must."""

    seed: int
    real: bool
    state: str = "unknown"
    failure: dict[str, Any] | None = None
    seconds: float = 0.0
    attempts: int = 0
    resumptions: int = 0
    steps_lost: int = 0
    leaks: int = 0
    lost_beyond_interval: int = 0
    unclear_failures: int = 0
    unexpected_failures: int = 0
    wrong_weights: int = 0
    problems: list[str] = field(default_factory=list)
    caused: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    left: dict[str, Any] = field(default_factory=dict)
    billed_chip_seconds: float = 0.0
    """From the service's own bill."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return dict(vars(self))
