"""When the scheduler is killed: moments in a run, each as long as the span a seed draws from."""

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

    :param name: as the command line has it.
    :param title: what happens then.
    :param task: the task by which it is known, and its states in which the moment has begun.
    :param seconds: how long it lasts, roughly; a seed draws a delay up to this.
    """

    name: str
    title: str
    task: str
    states: frozenset[str]
    seconds: float

    def has_begun(self, tasks: Tasks) -> bool:
        """Return whether a run with these tasks is in the moment, or past its begin."""
        return self.task in tasks and tasks[self.task].state in self.states | {"success"}

    def delay(self, seed: int) -> float:
        """Return how many seconds after its begin the scheduler is killed."""
        return self.draw(seed).uniform(0.0, self.seconds)

    def draw(self, seed: int) -> random.Random:
        """Return what all chance of a seed comes from."""
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
# Tasks that a ready TPU works for, or that end it.
_USES = ("tpu.create", "tpu.train", "tpu.evaluate", "tpu.probe", "tpu.delete")


def uses_tpu(tasks: Tasks) -> bool:
    """Return whether a task is at work that a TPU is rented for, or that gives it back."""
    return any(name in tasks and tasks[name].state in ACTIVE for name in _USES)
