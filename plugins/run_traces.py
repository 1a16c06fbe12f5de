"""Sends runs as OpenTelemetry traces if the environment sets an endpoint; else does nothing.

The endpoint is ``OTEL_EXPORTER_OTLP_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``.

The spans of tasks are made from Airflow's own records when the run has ended: the scheduler reads
them, hands them to a thread and goes on. A task's process sends the spans that only it can know:
which modules it ran and, once its TPUs are gone, what their time was spent on. The end of a run
does not depend on this; for a receiver that does not answer, only a task waits, at most
``OTEL_EXPORTER_OTLP_TIMEOUT``.

Every Airflow component executes this file, so it imports nothing heavy.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

DAG_IDS = ("bert_repretraining", "bert_finetuning")
"""DAGs whose runs are sent. In a shared Airflow, the DAGs of others are left alone."""

log = logging.getLogger(__name__)


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Send spans of the modules a task ran, and of the time of TPUs that it deleted."""
    _task_ended(task_instance)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Send spans of the modules that a task ran before it failed."""
    _task_ended(task_instance)


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Send the spans of the tasks of a run that has ended."""
    _run_ended(dag_run, "success")


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Send the spans of the tasks of a run that has ended."""
    _run_ended(dag_run, "failed")


def _task_ended(task_instance: Any) -> None:
    # When a person marks a task, in the API server, there is no task object.
    task = getattr(task_instance, "task", None)
    if task is None or task_instance.dag_id not in DAG_IDS or not _is_on():
        return
    try:
        _send_task(task_instance, task)
    except Exception:
        log.exception("Traces of task %s could not be made", task_instance.task_id)


def _send_task(task_instance: Any, task: Any) -> None:
    from airflow.sdk.configuration import conf

    from operators import traces
    from operators.tpu import TpuDeleteOperator
    from pipeline_store import identity
    from pipeline_store.layout import RunLayout

    map_index = -1 if task_instance.map_index is None else task_instance.map_index
    path = traces.task_path(task_instance.task_id, map_index, task_instance.try_number)
    ran = [(run.module, run.began, run.ended) for run in getattr(task, "ran", [])]
    parts = traces.module_parts(path, ran)
    if isinstance(task, TpuDeleteOperator) and task.run_uri:
        parts += traces.tpu_parts(RunLayout(task.run_uri))
    carrier = None
    if conf.getboolean("traces", "otel_on", fallback=False):
        carrier = getattr(task_instance, "context_carrier", None) or {}
    key = identity.run_key(task_instance.dag_id, task_instance.run_id)
    if traces.send(key, parts, carrier):
        log.info("Sent %d spans of run %s", len(parts), key)


def _run_ended(dag_run: Any, state: str) -> None:
    if dag_run.dag_id not in DAG_IDS or not _is_on():
        return
    try:
        from airflow.configuration import conf

        # If a person ends a run, its teardowns are still to come.
        if dag_run.end_date is None or conf.getboolean("traces", "otel_on", fallback=False):
            return
        from operators import traces
        from pipeline_store import identity

        key = identity.run_key(dag_run.dag_id, dag_run.run_id)
        send = traces.sender(key, _read_run(dag_run, state))
    except Exception:
        log.exception("The tasks of run %s could not be read for traces", dag_run.run_id)
        return
    threading.Thread(target=send, daemon=True).start()


def _read_run(dag_run: Any, state: str) -> list[Any]:
    """Return the spans of a run and of all tries of its tasks, in one query for each table."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    from operators import traces

    session = object_session(dag_run)
    if session is None:
        return []
    parts = [
        traces.run_part(dag_run.dag_id, dag_run.run_id, state, dag_run.start_date, dag_run.end_date)
    ]
    connection = session.connection()
    with connection.begin_nested():
        for model in (TaskInstanceHistory, TaskInstance):
            table = model.__table__
            wanted = select(
                *(table.c.task_id, table.c.map_index, table.c.try_number),
                *(table.c.state, table.c.start_date, table.c.end_date),
            ).where(
                table.c.dag_id == dag_run.dag_id,
                table.c.run_id == dag_run.run_id,
                table.c.start_date.is_not(None),
                table.c.end_date.is_not(None),
            )
            parts += [
                traces.task_part(traces.Task(*row[:3], str(row[3]), row[4], row[5]))
                for row in connection.execute(wanted)
            ]
    return parts


def _is_on() -> bool:
    """Return whether the environment turns OTLP traces on and sets an endpoint."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")
    is_otlp = "otlp" in map(str.strip, exporters)
    return is_otlp and not is_disabled and any(map(os.environ.get, names))


LISTENERS: list[Any] = [sys.modules[__name__]]


class RunTraces(AirflowPlugin):
    """Registers the listener."""

    name = "run_traces"
    listeners = LISTENERS
