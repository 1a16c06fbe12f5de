"""Random disturbances: an endless schedule of admin commands, the same for the same seed."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tpu_emulator.errors import invalid_argument
from tpu_emulator.fault_commands import OPERATION_METHODS, Command, check_zone
from tpu_emulator.faults import ANY, CHAOS, WORKER_FAULTS, Faults, Scope

_log = logging.getLogger(__name__)
_LATE_SECONDS = 1.0
_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED")
_WRITES = ("CreateQueuedResource", "DeleteQueuedResource", "CreateNode", "DeleteNode")
_METHODS = (*_WRITES, "GetQueuedResource", "GetNode", "ListQueuedResources", "ListNodes", ANY)
_NODE_STATES = ("PREEMPTED", "TERMINATED", "GONE")


@dataclass(frozen=True)
class Event:
    """One disturbance: an admin command `delay` seconds after the previous one.

    A command that needs a node gets the one at the fraction `pick` (0 to 1) of the existing
    nodes; if there are none, it is skipped.
    """

    delay: float
    kind: str
    command: str
    arguments: dict[str, Any]
    needs_node: bool
    pick: float


def _call(draw: random.Random, methods: tuple[str, ...], zone: str) -> dict[str, Any]:
    return {"method": draw.choice(methods), "count": 1, "zone": zone, "caller": ""}


Arguments = Callable[[random.Random, str], dict[str, Any]]
_ON_NODES: dict[str, tuple[str, Arguments]] = {
    "preempt": ("Preempt", lambda draw, _: {"node_state": draw.choice(_NODE_STATES)}),
    "reboot": ("Reboot", lambda draw, _: {}),
    "vanish": ("Vanish", lambda draw, _: {}),
    "notice": (
        "Notice",
        lambda draw, _: {
            "kind": draw.choice(("preempted", "maintenance")),
            "seconds": draw.uniform(0.5, 5.0),
        },
    ),
}
_IN_ZONES: dict[str, tuple[str, Arguments]] = {
    "arm-worker": (
        "ArmWorker",
        lambda draw, zone: {
            "zone": zone, "worker": draw.randrange(4), "fault": draw.choice(WORKER_FAULTS),
            "seconds": draw.uniform(0.0, 5.0), "count": 1,
        },
    ),
    "burst": (
        "Burst",
        lambda draw, zone: {
            "method": draw.choice(_METHODS), "codes": ["UNAVAILABLE", "DEADLINE_EXCEEDED"],
            "seconds": draw.uniform(0.5, 5.0), "share": draw.uniform(0.3, 1.0),
            "seed": draw.randrange(1_000_000), "zone": zone, "caller": "",
        },
    ),
    "delay-next": (
        "DelayNext",
        lambda draw, zone: _call(draw, _METHODS, zone)
        | {"seconds": draw.uniform(0.1, 5.0), "commit_late": draw.random() < 0.5},
    ),
    "duplicate-next": ("DuplicateNext", lambda draw, zone: _call(draw, _WRITES, zone)),
    "fail-next": (
        "FailNext",
        lambda draw, zone: _call(draw, _METHODS, zone)
        | {"code": draw.choice(_CODES), "message": ""},
    ),
    "fail-operation": (
        "FailOperation",
        lambda draw, zone: {
            "method": draw.choice(OPERATION_METHODS), "code": draw.choice(_CODES), "message": "",
            "zone": zone, "after_effect": draw.random() < 0.5, "count": 1,
        },
    ),
    "lose-reply": ("LoseReply", lambda draw, zone: _call(draw, _WRITES, zone)),
    "preempt-after": (
        "PreemptAfter",
        lambda draw, zone: {
            "zone": zone, "seconds": draw.uniform(0.0, 10.0),
            "since": draw.choice(("CREATING", "READY")),
            "node_state": draw.choice(_NODE_STATES), "count": 1,
        },
    ),
    "slow-operation": (
        "SlowOperation",
        lambda draw, zone: {
            "method": draw.choice(OPERATION_METHODS), "seconds": draw.uniform(0.5, 5.0),
            "zone": zone, "count": 1,
        },
    ),
    "stale-lists": (
        "StaleLists",
        lambda draw, zone: {
            "zone": zone, "seconds": draw.uniform(0.5, 5.0), "duration": draw.uniform(1.0, 10.0),
        },
    ),
    "stick-deleting": (
        "StickDeleting",
        lambda draw, zone: {"zone": zone, "seconds": draw.uniform(0.5, 10.0), "count": 1},
    ),
    "stockout": (
        "Stockout",
        lambda draw, zone: {
            "zone": zone, "shape": draw.choice(("sync", "lro", "state")), "count": 1,
        },
    ),
}  # fmt: skip
_EVERYWHERE: dict[str, tuple[str, Arguments]] = {
    "restart": ("Restart", lambda draw, _: {"seconds": draw.uniform(0.0, 5.0)}),
}
_ALL = _ON_NODES | _IN_ZONES | _EVERYWHERE
KINDS = tuple(sorted((*_ON_NODES, *_IN_ZONES)))
"""The default kinds of disturbances. All end by themselves."""
EXTRA_KINDS = tuple(_EVERYWHERE)
"""Kinds that must be chosen by name, because they affect all zones."""


def event(seed: int, step: int, zone: str, mean_seconds: float, kinds: Collection[str]) -> Event:
    """The event number `step` of a seed, which depends on nothing but these arguments."""
    draw = random.Random(f"{seed}/{step}")  # noqa: S311 - not for secrets
    delay = draw.expovariate(1.0 / mean_seconds)
    kind = draw.choice(sorted(kinds))
    command, arguments = _ALL[kind]
    return Event(
        delay,
        kind,
        command,
        arguments(draw, zone),
        needs_node=kind in _ON_NODES,
        pick=draw.random(),
    )


class Chaos:
    """Arms the schedule of a seed and runs its events when they are due."""

    def __init__(
        self,
        faults: Faults,
        commands: Mapping[str, Command],
        nodes_in: Callable[[str], list[Any]],
    ) -> None:
        """Takes the admin commands, and the function that lists the nodes of a zone."""
        self._faults = faults
        self._commands = commands
        self._nodes_in = nodes_in

    def commands(self) -> dict[str, Command]:
        """The commands by name."""
        return {"Chaos": self.start, "ChaosPlan": self.plan}

    def start(
        self, *, seed: int, zone: str, mean_seconds: float, kinds: list[str], events: int | None
    ) -> dict[str, Any]:
        """Arms a schedule, until it is cleared or `events` are over.

        Raises:
            ApiError: INVALID_ARGUMENT for an unknown kind or zone, or an invalid number.
        """
        chosen = _checked(zone, mean_seconds, kinds, events)
        first = event(seed, 0, zone, mean_seconds, chosen)
        self._faults.arm(
            CHAOS, Scope(zone=zone), count=events, seed=seed, mean_seconds=mean_seconds,
            kinds=chosen, step=0, due=time.time() + first.delay,
        )  # fmt: skip
        return {}

    def plan(
        self, *, seed: int, zone: str, mean_seconds: float, kinds: list[str], events: int
    ) -> dict[str, Any]:
        """The first events of a schedule, with their times in seconds from its start."""
        chosen = _checked(zone, mean_seconds, kinds, events)
        found = [event(seed, step, zone, mean_seconds, chosen) for step in range(events)]
        times = itertools.accumulate(current.delay for current in found)
        return {
            "events": [
                {"at": at, "kind": current.kind, "arguments": current.arguments}
                for at, current in zip(times, found, strict=True)
            ]
        }

    def next_event(self, fault: dict[str, Any]) -> None:
        """Runs the next event of a schedule if it is due, and plans the following one."""
        details = fault["details"]
        now = time.time()
        if now < details["due"]:
            return
        # An emulator that was away does not catch up on missed events.
        due = max(details["due"], now - _LATE_SECONDS)
        seed, step, zone = details["seed"], details["step"], fault["zone"]
        schedule = (details["mean_seconds"], details["kinds"])
        following = event(seed, step + 1, zone, *schedule)
        # Counted first: an event that fails must not be repeated forever.
        self._faults.change(fault, step=step + 1, due=due + following.delay)
        self._faults.use_up(fault)
        self._do(event(seed, step, zone, *schedule), seed, step, zone)

    def _do(self, current: Event, seed: int, step: int, zone: str) -> None:
        arguments = current.arguments
        if current.needs_node:
            nodes = self._nodes_in(zone)
            if not nodes:
                _log.info("chaos %s event %s: no node for %s", seed, step, current.kind)
                return
            arguments = arguments | {"node": nodes[int(current.pick * len(nodes))].name}
        _log.info("chaos %s event %s: %s %s", seed, step, current.kind, arguments)
        self._commands[current.command](**arguments)


def _checked(
    zone: str, mean_seconds: float, kinds: Collection[str], events: int | None
) -> list[str]:
    """Checks the arguments, and returns the kinds."""
    check_zone(zone)
    unknown = sorted(set(kinds) - set(_ALL))
    if unknown:
        raise invalid_argument(f"unknown kinds {unknown}; known: {', '.join(sorted(_ALL))}")
    if mean_seconds <= 0:
        raise invalid_argument(f"mean_seconds {mean_seconds}: must be positive")
    if events is not None and events < 1:
        raise invalid_argument(f"events {events}: must be at least 1")
    return sorted(set(kinds or KINDS))
