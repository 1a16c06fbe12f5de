"""Arguments that DAGs have in common: when and how often their tasks run, who hears of failures.

``DAG(..., **dag_defaults(owner, **task_alerting()), **run_alerting())`` for the DAG of the runs,
and ``DAG(..., **dag_defaults(owner), **maintenance_alerting())`` for one that runs often and looks
after others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum

from alerting import callbacks


def dag_defaults(
    owner: str, *, retry_delay: timedelta = timedelta(seconds=30), **of_tasks: Any
) -> dict[str, Any]:
    """Return arguments of a DAG: no run for what lies in the past, three tries of each task.

    :param of_tasks: further arguments of each task.
    """
    return {
        "start_date": pendulum.datetime(2026, 1, 1, tz="UTC"),
        "catchup": False,
        "default_args": {"owner": owner, "retries": 2, "retry_delay": retry_delay, **of_tasks},
    }


def run_alerting() -> dict[str, Any]:
    """Return arguments of a DAG: a failed run is told.

    That a run is overdue is found by the watch. Airflow's own deadlines are not used: in 3.3.2,
    clearing a task of a run that has one (``DAGRUN_QUEUED_AT``) answers 500.
    """
    return {"on_failure_callback": callbacks.run_failed}


def task_alerting() -> dict[str, Any]:
    """Return arguments of tasks: one that failed for good is told."""
    return {"on_failure_callback": callbacks.task_failed}


def maintenance_alerting() -> dict[str, Any]:
    """Return arguments of a DAG: a failed run is told, once a day."""
    return {"on_failure_callback": callbacks.maintenance_failed}
