"""What a worker or a triggerer is told to do; free of Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RETRY_SECONDS = 0.3
"""After the first failure of a task, and after the first round through the zones in vain."""

CONN_ID = "chaos"


@dataclass(frozen=True)
class Wire:
    """A deferral as the database keeps it: the trigger's path, its arguments, what comes after."""

    trigger: str
    arguments: dict[str, Any]
    method: str


@dataclass(frozen=True)
class TaskCall:
    """One execution of a task.

    :param dag_run: ids of the DAG and the run that the task is of.
    :param resume: after which deferral, and the event that its trigger fired; None: from the start.
    :param environment: what the process needs of it, the connection above all.
    """

    task: str
    operator: dict[str, Any]
    dag_run: tuple[str, str]
    try_number: int
    environment: Mapping[str, str]
    log: str
    resume: tuple[Wire, dict[str, Any]] | None = None


@dataclass(frozen=True)
class TriggerCall:
    """One life of a trigger."""

    wire: Wire
    environment: Mapping[str, str]
    log: str
