"""Defines a scenario: data that DAG files read, and the function that disturbs its run.

Also the locations of such a run's files.
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
"""The stage that a scenario's functions take; a variable, as its module depends on this one."""

GROUP = "tpu"
"""Mapped task group of a fine-tuning run, with one instance per TPU."""


class Subject(StrEnum):
    """The project's DAG whose way of renting TPUs a scenario tests."""

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
    """The differences of a scenario's DAG from the usual one. Durations are seconds."""

    fail_fast: bool = False
    """Whether the DAG has an additional task that fails on request, and is fail-fast."""
    dagrun_timeout: float | None = None
    run_execution_timeout: float | None = None
    defer_timeout: float | None = None
    """Replaces the operators' own timeout of a deferral."""
    create_raises: bool = False
    """The create task fails once its TPU is READY."""
    retries: int = 5
    """Retries of the tasks: Airflow itself fails one at times, more often while parts restart."""
    control_retries: int = 0
    daily: bool = False
    """Whether it can be backfilled."""
    own_file: bool = False
    """Whether it is in its own file, which can be removed."""
    job: tuple[str, ...] = ()
    """Further arguments of the fake trainer."""


@dataclass(frozen=True)
class Scenario(Generic[StageT]):
    """One way in which something goes wrong while a TPU is rented.

    :param id: unique, letters and dashes.
    :param title: description for the table.
    :param expected: the layer that must delete the TPU.
    :param disturb: starts the run and disturbs it; what follows must happen by itself.
    :param ends: state in which the run must end, alternatives separated by "|"; for several runs,
        all states separated by spaces; None if nothing is left to end them.
    :param also_on: layers that work besides the expected one; all others are turned off.
    :param bound: maximum poll intervals from the end of the disturbance until nothing is left.
    :param config: settings of the run by ``section.name``.
    :param shape: differences of its DAG.
    :param zones: number of zones in which the run may request a TPU.
    :param accident: name of an accident to the whole stack, which scenarios share.
    :param control: whether it is also run with the control DAG.
    :param check: returns further problems afterwards, besides leftovers.
    :param fast: whether tests run it; some of these are part of ``make test``.
    :param subject: the DAG whose tasks and task groups its DAG has.
    :param tpus: number of TPUs; more than one only for a fine-tuning run.
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
        """Return the layers that work, without those that cannot be turned off."""
        return (self.also_on | {self.expected}) & ALL_LAYERS - {without}

    @property
    def owner(self) -> str:
        """Return the owner label of its TPUs."""
        return f"matrix-{self.id}"

    @property
    def dag_id(self) -> str:
        """Return the id of its DAG."""
        return f"matrix_{self.id.replace('-', '_')}"

    @property
    def control_dag_id(self) -> str:
        """Return the id of the control DAG."""
        return f"control_{self.id.replace('-', '_')}"

    @property
    def reaper_dag_id(self) -> str:
        """Return the id of its owner's reaper DAG."""
        return f"reaper_{self.id.replace('-', '_')}"


def run_uri(store_uri: str, dag_id: str, run_id: str, tpu: int = 0) -> str:
    """Return the store's folder for a run's TPU; for the first TPU the run's own folder."""
    key = run_key(dag_id, run_id)
    return StoreLayout(store_uri).run(rental_key(key, tpu)).root


def run_folder(store_uri: str, dag_id: str, run_id: str, tpu: int = 0) -> Path:
    """Return the folder in which a TPU's job and the matrix signal: ``started``, ``finish``."""
    return Path(run_uri(store_uri, dag_id, run_id, tpu), "matrix")
