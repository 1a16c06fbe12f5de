"""Queries Airflow about DAG runs from inside a task or a trigger."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, cast

from airflow.sdk.exceptions import AirflowRuntimeError

if TYPE_CHECKING:
    from airflow.sdk.execution_time.comms import DagRunResult

NOT_FOUND = 404

log = logging.getLogger(__name__)


def is_under_way(dag_id: str, run_id: str) -> bool:
    """Return whether a DAG run is running.

    False for a run that has ended or was deleted, and for one that a person cleared and that is
    queued to start over.

    :raises AirflowRuntimeError: Airflow does not answer.
    """
    # Imported late: DAG files import this module, but only tasks and triggers can ask.
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    try:
        state = RuntimeTaskInstance.get_dagrun_state(dag_id=dag_id, run_id=run_id)
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == NOT_FOUND:
            return False
        raise
    return state == "running"


def end_of(dag_id: str, run_id: str) -> datetime | None:
    """Return when a DAG run ended, by Airflow's clock; None: it has not ended.

    :raises LookupError: Airflow does not know the run, or no longer does.
    :raises AirflowRuntimeError: Airflow does not answer.
    """
    return _dag_run(dag_id, run_id).end_date


def times_cleared(dag_id: str, run_id: str) -> int | None:
    """Return how often people have cleared tasks of a DAG run; None: Airflow does not know the run.

    The count in a task's own context may be out of date: another task may have been cleared since.

    :raises AirflowRuntimeError: Airflow does not answer.
    """
    try:
        return _dag_run(dag_id, run_id).clear_number or 0
    except LookupError:
        return None


def _dag_run(dag_id: str, run_id: str) -> DagRunResult:
    from airflow.sdk.execution_time.comms import GetDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    try:
        answer = SUPERVISOR_COMMS.send(msg=GetDagRun(dag_id=dag_id, run_id=run_id))
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == NOT_FOUND:
            raise LookupError(f"Airflow knows no run {run_id} of {dag_id}.") from error
        raise
    return cast("DagRunResult", answer)


def failed_tasks(dag_id: str, run_id: str) -> list[str]:
    """Return the ids of a DAG run's tasks that have failed, sorted.

    :raises AirflowRuntimeError: Airflow does not answer.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = RuntimeTaskInstance.get_task_states(dag_id=dag_id, run_ids=[run_id])
    return sorted(task for task, state in states.get(run_id, {}).items() if state == "failed")


def known_failed_tasks(dag_id: str, run_id: str) -> list[str]:
    """Return the tasks as :func:`failed_tasks` does; none, with a warning, without an answer."""
    try:
        return failed_tasks(dag_id, run_id)
    except AirflowRuntimeError as error:
        log.warning("Airflow does not say which tasks have failed: %s", error)
        return []
