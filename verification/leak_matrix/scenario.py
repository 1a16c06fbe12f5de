"""What a scenario is: data that DAG files read, and the function that disturbs its run.

And where such a run has its files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from pipeline_store.identity import rental_key, run_key
from pipeline_store.layout import StoreLayout
from verification.leak_matrix.layers import REMOVABLE, Layer

StageT = TypeVar("StageT")
"""What the functions of a scenario work with; it knows scenarios, not they it."""

GROUP = "tpu"
"""Task group that a fine-tuning run has once for each TPU, mapped."""


class Subject(StrEnum):
    """The DAG of the project whose way to rent TPUs a scenario is about."""

    REPRETRAINING = "bert_repretraining"
    FINETUNING = "bert_finetuning"

    def task_id(self, name: str) -> str:
        """Return the id of one of the tasks ``reserve``, ``create``, ``run`` and ``delete``."""
        return f"{GROUP}.{name}" if self is Subject.FINETUNING else name


ALL_LAYERS = frozenset(REMOVABLE)
POLL_SECONDS = 1.0
"""``tpu.poll_interval`` of all runs, the unit of every bound."""


@dataclass(frozen=True)
class DagShape:
    """How a scenario's DAG differs from the usual one. Durations are seconds."""

    fail_fast: bool = False
    """With a task beside that fails when told."""
    dagrun_timeout: float | None = None
    run_execution_timeout: float | None = None
    defer_timeout: float | None = None
    """Replaces the operators' own timeout of a deferral."""
    create_raises: bool = False
    """The create task fails once its TPU is READY."""
    retries: int = 5
    """Of the tasks: Airflow itself fails one now and then, more often while its parts restart."""
    control_retries: int = 0
    daily: bool = False
    """Can be backfilled."""
    own_file: bool = False
    """In a file of its own, which can be removed."""
    job: tuple[str, ...] = ()
    """Further arguments of the fake trainer."""


@dataclass(frozen=True)
class Scenario(Generic[StageT]):
    """One way in which something goes wrong while a TPU is rented.

    :param id: unique, letters and dashes.
    :param title: what happens, for the table.
    :param expected: the layer that has to give the TPU back.
    :param disturb: starts the run and disturbs it; what follows must happen by itself.
    :param ends: state in which the run must end, or several with "|"; of several runs, all with a
        space; None when nobody is left to end them.
    :param also_on: layers that work besides the expected one; all others are switched off.
    :param bound: poll intervals from the end of the disturbance until nothing is left.
    :param config: settings of the run by ``section.name``.
    :param shape: of the DAG.
    :param zones: how many zones the run may ask in.
    :param accident: name of what happens to the whole stack, once for all scenarios that share it.
    :param control: also done to the control DAG.
    :param check: says afterwards what is wrong besides what is left.
    :param fast: one that tests play; some of these are part of ``make test``.
    :param subject: the DAG whose tasks and task groups its DAG has.
    :param tpus: how many of them; more than one only for a fine-tuning run.
    """

    id: str
    title: str
    expected: Layer
    disturb: Callable[[StageT], None]
    ends: str | None = "failed"
    also_on: frozenset[Layer] = frozenset()
    bound: int = 90
    config: Mapping[str, Any] = field(default_factory=dict)
    shape: DagShape = DagShape()
    zones: int = 1
    accident: str | None = None
    control: bool = False
    check: Callable[[StageT], list[str]] | None = None
    fast: bool = False
    subject: Subject = Subject.REPRETRAINING
    tpus: int = 1

    def layers(self, without: Layer | None = None) -> frozenset[Layer]:
        """Return the layers that work, those that cannot be switched off aside."""
        return (self.also_on | {self.expected}) & ALL_LAYERS - {without}

    @property
    def owner(self) -> str:
        """Return the owner label of its TPUs."""
        return f"matrix-{self.id}"

    @property
    def dag_id(self) -> str:
        """Return its DAG."""
        return f"matrix_{self.id.replace('-', '_')}"

    @property
    def control_dag_id(self) -> str:
        """Return the DAG of the control."""
        return f"control_{self.id.replace('-', '_')}"

    @property
    def reaper_dag_id(self) -> str:
        """Return the reaper DAG of its owner."""
        return f"reaper_{self.id.replace('-', '_')}"


def run_uri(store_uri: str, dag_id: str, run_id: str, tpu: int = 0) -> str:
    """Return the folder in the store that a run's TPU is rented for; of the first the run's own."""
    key = run_key(dag_id, run_id)
    return StoreLayout(store_uri).run(rental_key(key, tpu)).root


def run_folder(store_uri: str, dag_id: str, run_id: str, tpu: int = 0) -> Path:
    """Return the folder by which a TPU's job and the matrix talk: ``started``, ``finish``."""
    return Path(run_uri(store_uri, dag_id, run_id, tpu), "matrix")
