"""What Airflow calls when a task or a run failed.

Airflow may call twice, in two processes; after a lost heartbeat it calls in the DAG processor. The
alert's file is created once, so one of them tells. When a person ends a run Airflow calls nobody:
then the watch finds it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from alerting.announcing import announce, run_link
from pipeline_alerts.causes import RUN_FAILURES, Cause
from pipeline_alerts.raising import (
    AlertedRun,
    has_failure_alert,
    raise_about_installation,
    raise_about_run,
)
from pipeline_config.settings import load_settings
from pipeline_store.layout import StoreLayout


def task_failed(context: Any) -> None:
    """Tell that a task failed for good. For ``on_failure_callback`` of tasks."""
    settings, ti = load_settings(), context["ti"]
    store = StoreLayout(settings.store_uri)
    error = context.get("exception")
    if getattr(error, "is_told", False):
        return
    run = AlertedRun(ti.dag_id, ti.run_id, run_link(ti.dag_id, ti.run_id, ti.task_id))
    if error is None and has_failure_alert(store, run.key, RUN_FAILURES):
        # The heartbeat was lost and Airflow calls when the run has ended already: somebody else
        # saw that first, and this call knows no more.
        return
    # Each instance of a mapped task is told.
    name = ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"
    alert = raise_about_run(
        store,
        run,
        Cause.TASK_FAILED,
        detail=name,
        summary=f"task {name} failed",
        reason=f"Task {name}, try {ti.try_number}: "
        f"{describe(error, with_text=settings.alert_with_text)}",
        with_text=settings.alert_with_text,
        remedy=str(getattr(error, "remedy", "")),
    )
    announce(store, alert)


def run_failed(context: Any) -> None:
    """Tell that a run failed, unless a task of it told so. For ``on_failure_callback`` of DAGs."""
    run_was_ended(
        context["dag"].dag_id,
        context["run_id"],
        summary="the run failed",
        reason=f"Airflow ended the run as failed: {context.get('reason') or 'no reason given'}. No "
        "task of it reported a failure.",
    )


def run_was_ended(dag_id: str, run_id: str, *, summary: str, reason: str) -> None:
    """Tell that a run failed, unless somebody is told already.

    A run's last task that knows why tells it itself, and not when Airflow calls: it calls for the
    task and for the run, in two processes, and only the task knows who has ended the run.
    """
    settings = load_settings()
    store = StoreLayout(settings.store_uri)
    run = AlertedRun(dag_id, run_id, run_link(dag_id, run_id))
    if has_failure_alert(store, run.key):
        return
    alert = raise_about_run(
        store,
        run,
        Cause.RUN_FAILED,
        summary=summary,
        reason=reason,
        with_text=settings.alert_with_text,
    )
    announce(store, alert)


def maintenance_failed(context: Any) -> None:
    """Tell that a DAG that looks after others failed; once a day. For DAGs that run often."""
    store = StoreLayout(load_settings().store_uri)
    dag_id, run_id = context["dag"].dag_id, context["run_id"]
    alert = raise_about_installation(
        store,
        f"{dag_id}-{datetime.now(UTC):%Y-%m-%d}",
        Cause.MAINTENANCE_FAILED,
        about=dag_id,
        summary="failed",
        reason=f"Run {run_id} of {dag_id} failed: {context.get('reason') or 'no reason given'}. "
        "Further failures of today are not reported.",
        link=run_link(dag_id, run_id),
    )
    announce(store, alert)


def describe(error: Any, *, with_text: bool) -> str:
    """Return why a task failed.

    The message of an exception may quote corpus text, such as a job's last words. What the
    pipeline itself has stopped is told as it says it, and of failures of TPU tasks the first line,
    which is its own too.

    :param error: the exception; None: Airflow does not say, as after a lost heartbeat.
    :param with_text: whether text may be quoted.
    """
    if error is None:
        return (
            "it ended without saying why: it could not begin, its process was killed, or its "
            "heartbeat was lost. Look at the machine's load and memory, and the scheduler's log."
        )
    kind, message = type(error).__name__, str(error)
    is_of_tpu = getattr(error, "kind", None) is not None
    if getattr(error, "remedy", None) is not None and not is_of_tpu:
        return message
    if with_text:
        return f"{kind}: {message}"
    if is_of_tpu:
        return f"{kind}: {message.partition(chr(10))[0]}"
    return f"{kind}. Its message is not quoted, as it may hold corpus text: see the task's log."
