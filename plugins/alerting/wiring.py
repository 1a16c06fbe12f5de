"""What a DAG needs so that its failures are told.

``DAG(..., default_args={..., **task_alerting()}, **run_alerting())`` for the DAG of the runs, and
``DAG(..., **maintenance_alerting())`` for one that runs often and looks after others.
"""

from __future__ import annotations

from typing import Any

from alerting import callbacks


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
