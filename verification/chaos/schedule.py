"""Draws the faults of a run, and their times, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from verification.chaos.audit import PERSON

ZONES = ("us-central1-a", "us-west4-a")
TRAIN_STEPS = 30
CHECKPOINT_INTERVAL = 10
MAX_FAULTS = 6

Details = dict[str, Any]
_Draw = Callable[[random.Random], Details]

_READS = ("GetQueuedResource", "GetNode", "ListQueuedResources", "ListNodes")
_WRITES = ("CreateQueuedResource", "DeleteQueuedResource")
_PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "UNKNOWN")


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    :param weight: relative frequency.
    :param phases: phases of the group in which it makes sense; a phase has the name of its task.
    :param failures: kinds of failure in which a run may end because of it; if empty, the run must
        succeed.
    :param needs_step: whether it can wait for a step of the training.
    """

    weight: int
    phases: tuple[str, ...]
    draw: _Draw = lambda rng: {}
    failures: tuple[str, ...] = ()
    needs_step: bool = False


# Approximate durations, so that a fault falls into its phase.
_PHASE_SECONDS = {"reserve": 0.2, "create": 1.5, "train": 4.0, "evaluate": 1.0, "delete": 1.5}

ALL = ("reserve", "create", "train", "evaluate", "delete")
ON_TPU = ("train", "evaluate")


def _seconds(low: float, high: float) -> Callable[[random.Random], float]:
    return lambda rng: round(rng.uniform(low, high), 2)


KINDS: dict[str, Kind] = {
    # The service.
    "fail_call": Kind(
        3,
        ALL,
        lambda rng: {
            "method": rng.choice((*_READS, *_WRITES, "*")),
            "code": rng.choice(_PASSING),
            "count": rng.randint(1, 3),
        },
    ),
    "burst": Kind(
        2,
        ALL,
        lambda rng: {
            "codes": rng.sample(_PASSING, 2),
            "seconds": _seconds(0.5, 4)(rng),
            "share": rng.choice((0.3, 0.6, 1.0)),
        },
    ),
    "lose_reply": Kind(3, ALL, lambda rng: {"method": rng.choice(_WRITES)}),
    "delay_call": Kind(
        3,
        ALL,
        lambda rng: {
            "method": rng.choice((*_WRITES, "GetQueuedResource")),
            "seconds": _seconds(0.2, 5)(rng),
            "commit_late": rng.random() < 0.5,
        },
    ),
    "duplicate_call": Kind(1, ALL, lambda rng: {"method": rng.choice(_WRITES)}),
    "stockout": Kind(
        2,
        ("reserve", "create", "train"),
        lambda rng: {"zone": rng.choice(ZONES), "shape": rng.choice(("sync", "lro", "state"))},
    ),
    "deny": Kind(
        1,
        ALL,
        lambda rng: {"method": rng.choice(_WRITES), "seconds": _seconds(0.5, 3)(rng)},
        failures=("permission",),
    ),
    "quota": Kind(
        1,
        ("reserve", "create", "train"),
        lambda rng: {
            "refusals": rng.randint(0, 2),
            "seconds": _seconds(2, 8)(rng),
            "lag": _seconds(0.5, 4)(rng),
        },
    ),
    "fail_operation": Kind(
        1, ("reserve", "create", "train", "delete"), lambda rng: {"method": rng.choice(_WRITES)}
    ),
    "slow_operation": Kind(
        1,
        ALL,
        lambda rng: {"method": rng.choice(_WRITES), "seconds": _seconds(0.5, 4)(rng)},
    ),
    "stick_deleting": Kind(1, ALL, lambda rng: {"seconds": _seconds(1, 6)(rng)}),
    "stale_lists": Kind(1, ALL, lambda rng: {"seconds": _seconds(0.5, 3)(rng)}),
    "restart_service": Kind(
        2,
        ALL,
        lambda rng: {"how": rng.choice(("kill", "stop")), "seconds": _seconds(0, 2)(rng)},
    ),
    # The TPU.
    "preempt": Kind(
        6,
        ("create", *ON_TPU),
        lambda rng: {"node_state": rng.choice(("PREEMPTED", "TERMINATED", "GONE"))},
        needs_step=True,
    ),
    "vanish": Kind(2, ON_TPU, needs_step=True),
    "reboot": Kind(2, ON_TPU, needs_step=True),
    "notice": Kind(
        2,
        ON_TPU,
        lambda rng: {
            "kind": rng.choice(("preempted", "maintenance")),
            "seconds": _seconds(0.2, 3)(rng),
        },
        needs_step=True,
    ),
    "kill_job": Kind(3, ON_TPU, needs_step=True),
    "kill_agent": Kind(3, ON_TPU, needs_step=True),
    "hang_vm": Kind(2, ON_TPU, needs_step=True),
    "no_boot": Kind(1, ("reserve", "create")),
    # The orchestrator.
    "kill_process": Kind(6, ALL, needs_step=True),
    "orphan_process": Kind(2, ALL),
    "clear_task": Kind(
        2,
        ("create", *ON_TPU),
        lambda rng: {"late": _seconds(0, 3)(rng), "kills": rng.randint(0, 2)},
        needs_step=True,
    ),
    "clear_group": Kind(
        2,
        ("create", *ON_TPU),
        lambda rng: {"late": _seconds(0, 3)(rng), "kills": rng.randint(0, 2)},
        needs_step=True,
    ),
    "mark_failed": Kind(
        2,
        ("create", *ON_TPU),
        lambda rng: {"late": _seconds(0, 3)(rng), "kills": rng.randint(0, 2)},
        failures=(PERSON,),
        needs_step=True,
    ),
    "store_outage": Kind(2, ALL, lambda rng: {"seconds": _seconds(0.5, 4)(rng)}, needs_step=True),
}

REAL_KINDS = (
    "preempt",
    "reboot",
    "kill_job",
    "kill_agent",
    "kill_process",
    "clear_task",
    "lose_reply",
    "restart_service",
)
"""Kinds of faults for trainings with the real trainer; the others do not affect the trainer."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param delay: seconds after its phase began.
    :param step: step of the training before which it does not happen either; None: any.
    """

    kind: str
    phase: str
    delay: float
    step: int | None
    details: Details

    def __str__(self) -> str:
        at = f" and step {self.step}" if self.step is not None else ""
        what = " ".join(f"{name}={value}" for name, value in self.details.items())
        return f"{self.phase}+{self.delay}s{at}: {self.kind} {what}".rstrip()


@dataclass(frozen=True)
class Schedule:
    """One run's faults."""

    seed: int
    real: bool
    faults: tuple[Fault, ...]

    @property
    def failures(self) -> frozenset[str]:
        """Return the kinds of failure in which the run may end; if empty, it must succeed."""
        return frozenset(kind for fault in self.faults for kind in KINDS[fault.kind].failures)

    def to_json(self) -> dict[str, Any]:
        """Return the schedule as plain values."""
        return asdict(self)


def draw(seed: int, *, real: bool = False) -> Schedule:
    """Return the schedule of a seed, which is reproducible."""
    rng = random.Random(f"{'real' if real else 'fake'}-{seed}")  # noqa: S311 - it has to repeat
    kinds = {name: KINDS[name] for name in (REAL_KINDS if real else KINDS)}
    count = rng.randint(1, 3) if real else rng.choice((1, 2, 2, 3, 3, 4, 5, MAX_FAULTS))
    names = rng.choices(list(kinds), [kind.weight for kind in kinds.values()], k=count)
    faults = sorted((_draw(name, rng, real=real) for name in names), key=_moment)
    return Schedule(seed, real, tuple(faults))


def _draw(name: str, rng: random.Random, *, real: bool) -> Fault:
    kind = KINDS[name]
    phase = "train" if real else rng.choice(kind.phases)
    by_step = phase == "train" and kind.needs_step and (real or rng.random() < 0.8)
    step = rng.randint(1, TRAIN_STEPS - 1) if by_step else None
    delay = 0.0 if by_step else round(rng.uniform(0.0, _PHASE_SECONDS[phase]), 2)
    return Fault(name, phase, delay, step, kind.draw(rng))


def _moment(fault: Fault) -> tuple[int, int, float]:
    return ALL.index(fault.phase), fault.step or 0, fault.delay
