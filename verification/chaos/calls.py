"""The calls that a worker or a triggerer executes; free of Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RETRY_SECONDS = 0.3
"""Pause after the first failure of a task, and after the first failed round through the zones."""

CONN_ID = "chaos"


@dataclass(frozen=True)
class Wire:
    """A deferral as the database stores it: trigger path, arguments, and method to resume."""

    trigger: str
    arguments: dict[str, Any]
    method: str


@dataclass(frozen=True)
class TaskCall:
    """One execution of a task.

    :param dag_run: ids of the task's DAG and run.
    :param resume: deferral to resume from, and the event of its trigger; None: from the start.
    :param environment: environment variables for the process, above all the connection.
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
    """One execution of a trigger."""

    wire: Wire
    environment: Mapping[str, str]
    log: str
