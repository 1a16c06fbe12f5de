"""Common arguments of DAGs: start date, retries of their tasks, and alerts on failure.

Use ``DAG(..., **dag_defaults(owner, **task_alerting()), **run_alerting())`` for the DAG of the
runs, and ``DAG(..., **dag_defaults(owner), **maintenance_alerting())`` for a maintenance DAG that
runs often.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum

from alerting import callbacks


def dag_defaults(
    owner: str, *, retry_delay: timedelta = timedelta(seconds=30), **of_tasks: Any
) -> dict[str, Any]:
    """Return arguments of a DAG: no catch-up of past runs, three tries of each task.

    :param of_tasks: further default arguments of the tasks.
    """
    return {
        "start_date": pendulum.datetime(2026, 1, 1, tz="UTC"),
        "catchup": False,
        "default_args": {"owner": owner, "retries": 2, "retry_delay": retry_delay, **of_tasks},
    }


def run_alerting() -> dict[str, Any]:
    """Return arguments of a DAG that alert on a failed run.

    The watch finds overdue runs. Airflow's own deadlines are not used: in 3.3.2, clearing a task of
    a run with a deadline (``DAGRUN_QUEUED_AT``) answers HTTP 500.
    """
    return {"on_failure_callback": callbacks.run_failed}


def task_alerting() -> dict[str, Any]:
    """Return arguments of tasks that alert on a task that failed for good."""
    return {"on_failure_callback": callbacks.task_failed}


def maintenance_alerting() -> dict[str, Any]:
    """Return arguments of a DAG that alert on a failed run, at most once a day."""
    return {"on_failure_callback": callbacks.maintenance_failed}
