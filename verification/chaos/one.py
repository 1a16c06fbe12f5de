"""Runs one schedule and checks what is left."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pipeline_store.formats import TrainingResult
from tpu_emulator.testing import wait_for
from tpu_lifecycle.records.reservation import newest_generation, open_reservation
from verification.chaos.audit import Report, is_clear, read_trace, steps_lost
from verification.chaos.fake_training import chain
from verification.chaos.faults import Trouble
from verification.chaos.group import Group
from verification.chaos.schedule import CHECKPOINT_INTERVAL, TRAIN_STEPS, Schedule
from verification.chaos.world import World

SETTLE_SECONDS = 90.0
"""Time for effects that outlive the teardown: orphaned processes, calls with a delayed effect."""

EMPTY = {"queued_resources": 0, "nodes": 0, "processes": 0}


class Training(Protocol):
    """A training: its settings, expected result and progress."""

    settings: dict[str, Any]
    weights_sha256: str

    def jobs(self, world: World) -> dict[str, tuple[str, list[str]]]:
        """Return the work tasks' entry points and arguments."""
        ...

    def step(self, world: World) -> int:
        """Return the current step; 0 before the first."""
        ...

    def steps_lost(self, world: World) -> list[int]:
        """Return for each resumption how many steps had to be repeated."""
        ...


@dataclass
class FakeTraining:
    """Counted steps; see :class:`Training`."""

    settings: dict[str, Any] = field(default_factory=dict)
    weights_sha256: str = chain.final(TRAIN_STEPS).hex()
    step_seconds: float | None = None
    """None: the trainer's default."""

    def jobs(self, world: World) -> dict[str, tuple[str, list[str]]]:
        """Return the work tasks' entry points and arguments."""
        run = ["--run", world.run.root]
        pace = [] if self.step_seconds is None else ["--step-seconds", str(self.step_seconds)]
        return {
            "train": ("training.train", [*run, "--trace", str(_trace(world)), *pace]),
            "evaluate": ("training.evaluate", run),
        }

    def step(self, world: World) -> int:
        """Return the furthest step in the trainers' trace."""
        return max((event.step for event in read_trace(_trace(world))), default=0)

    def steps_lost(self, world: World) -> list[int]:
        """Return the steps lost according to the trainers' trace."""
        return steps_lost(read_trace(_trace(world)))


def _trace(world: World) -> Path:
    # Outside the store, so that faults of the store do not affect it.
    return world.folder / "trace.jsonl"


def run_schedule(schedule: Schedule, folder: Path, training: Training) -> Report:
    """Run a schedule in an empty folder."""
    report = Report(schedule.seed, schedule.real)
    began = time.monotonic()
    with World.create(folder, training.settings) as world:
        trouble = Trouble(schedule, world, lambda: training.step(world))
        group = Group(world, training.jobs(world), trouble.tick)
        group.run()
        report.left = _left_after_teardown(world, group)
        report.failure = group.failure
        report.history, report.caused = group.history, trouble.caused
        report.billed_chip_seconds = world.emulator.admin.bill()["chip_seconds"]
        report.missed = [str(fault) for fault in trouble.pending]
        _judge(report, group, schedule, training)
    report.seconds = round(time.monotonic() - began, 1)
    return report


def _left_after_teardown(world: World, group: Group) -> dict[str, Any]:
    """Return the cloud's resources after the teardown, or once all calls have taken effect."""
    # After a successful teardown nothing may be left, even while other processes are alive.
    at_once = EMPTY if group.teardown_failed else world.left()
    group.settle(SETTLE_SECONDS)
    try:
        wait_for(lambda: not _in_flight(world) and world.left() == EMPTY, interval=0.5)
    except TimeoutError:
        return world.left()
    return at_once


def _in_flight(world: World) -> bool:
    return any(not call["code"] for call in world.emulator.admin.calls())


def _judge(report: Report, group: Group, schedule: Schedule, training: Training) -> None:
    run = group.world.run
    report.leaks = sum(report.left.values())
    if report.leaks:
        report.problems.append(f"left: {report.left}")
    report.attempts = sum(
        len(open_reservation(run.root, number).attempts())
        for number in range(1, newest_generation(run) + 1)
    )
    _judge_end(report, group, schedule)
    _judge_training(report, group.world, training)


def _judge_end(report: Report, group: Group, schedule: Schedule) -> None:
    if report.failure is None:
        report.state = "success"
        return
    report.state = "failed"
    if not is_clear(report.failure):
        report.unclear_failures = 1
        report.problems.append(f"unclear failure: {report.failure}")
    elif group.teardown_failed or report.failure["kind"] not in schedule.failures:
        report.unexpected_failures = 1
        report.problems.append(f"should have succeeded: {report.failure}")


def _judge_training(report: Report, world: World, training: Training) -> None:
    lost = training.steps_lost(world)
    report.resumptions, report.steps_lost = len(lost), sum(lost)
    report.lost_beyond_interval = sum(1 for steps in lost if steps > CHECKPOINT_INTERVAL)
    if report.lost_beyond_interval:
        report.problems.append(f"steps lost: {lost}, of at most {CHECKPOINT_INTERVAL}")
    result = TrainingResult.load_or_none(world.run.training.result)
    weights = result.weights_sha256 if result else None
    if weights != training.weights_sha256 and (report.state == "success" or result):
        report.wrong_weights = 1
        report.problems.append(f"weights {weights}, expected {training.weights_sha256}")
