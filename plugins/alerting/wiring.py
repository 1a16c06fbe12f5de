"""What a DAG needs so that its failures are told.

``DAG(..., default_args={..., **task_alerting()}, **run_alerting())`` for the DAG of the runs, and
``DAG(..., **maintenance_alerting())`` for one that runs often and looks after others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from alerting import callbacks, overdue
from pipeline_config.settings import load_settings


def run_alerting() -> dict[str, Any]:
    """Return arguments of a DAG: a failed run and an overdue one are told."""
    deadline = DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=load_settings().overdue_hours),
        callback=AsyncCallback(overdue.report),
    )
    return {"on_failure_callback": callbacks.run_failed, "deadline": deadline}


def task_alerting() -> dict[str, Any]:
    """Return arguments of tasks: one that failed for good is told."""
    return {"on_failure_callback": callbacks.task_failed}


def maintenance_alerting() -> dict[str, Any]:
    """Return arguments of a DAG: a failed run is told, once a day."""
    return {"on_failure_callback": callbacks.maintenance_failed}
