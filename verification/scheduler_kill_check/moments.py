"""Moments in a run at which the scheduler is killed, each with a time span to draw from."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from local.stack.airflow_api import TaskInstance

Tasks = Mapping[str, TaskInstance]
ACTIVE = frozenset({"running", "deferred"})


@dataclass(frozen=True)
class Moment:
    """A part of a run.

    :param name: its name on the command line.
    :param title: what happens in it.
    :param task: the task that identifies it.
    :param states: states of the task in which the moment has begun.
    :param seconds: its approximate duration; a seed draws a delay up to this.
    """

    name: str
    title: str
    task: str
    states: frozenset[str]
    seconds: float

    def has_begun(self, tasks: Tasks) -> bool:
        """Return whether the moment has begun in a run with these tasks."""
        return self.task in tasks and tasks[self.task].state in self.states | {"success"}

    def delay(self, seed: int) -> float:
        """Return the seconds from its beginning to the kill."""
        return self.draw(seed).uniform(0.0, self.seconds)

    def draw(self, seed: int) -> random.Random:
        """Return the random generator of a seed."""
        return random.Random(f"{self.name}/{seed}")  # noqa: S311 - no secret


MOMENTS = (
    Moment("prepare", "the data job runs in a worker", "data.prepare", frozenset({"running"}), 4.0),
    Moment("asking", "the TPU is asked for and awaited", "tpu.create", ACTIVE, 2.0),
    Moment(
        "training",
        "the job trains on the TPU and its task is deferred",
        "tpu.train",
        frozenset({"deferred"}),
        8.0,
    ),
    Moment("evaluation", "the training has just ended", "tpu.train", frozenset(), 3.0),
    Moment("ending", "the TPU is given back and the model judged", "tpu.delete", ACTIVE, 4.0),
)
BY_NAME = {moment.name: moment for moment in MOMENTS}
# Tasks that use a ready TPU, or delete it.
_USES = ("tpu.create", "tpu.train", "tpu.evaluate", "tpu.probe", "tpu.delete")


def uses_tpu(tasks: Tasks) -> bool:
    """Return whether a task is active that uses a TPU or deletes it."""
    return any(name in tasks and tasks[name].state in ACTIVE for name in _USES)
