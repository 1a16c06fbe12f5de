"""Callbacks that Airflow calls when a task or a run has failed.

Airflow may call twice, in two processes; after a lost heartbeat it calls in the DAG processor. The
alert's file is created once, so only one of the calls notifies people. When a person ends a run,
Airflow calls no callback, and the watch finds the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError

from alerting.announcing import announce, run_link
from hooks.dag_runs import known_failed_tasks, times_cleared
from model_registry.errors import RegistryError
from pipeline_alerts.causes import RUN_FAILURES, Cause, Remedy
from pipeline_alerts.raising import (
    AlertedRun,
    has_failure_alert,
    raise_about_installation,
    raise_about_run,
)
from pipeline_config import ConfigError
from pipeline_config.settings import load_settings
from pipeline_store.formats import FormatError
from pipeline_store.layout import StoreLayout
from trained_models.errors import UserError

_OWN = (ConfigError, FormatError, RegistryError, UserError)
"""The pipeline's own errors, whose messages name settings, files and versions but quote no text."""

log = logging.getLogger(__name__)


def task_failed(context: Any) -> None:
    """Raise an alert for a task that failed for good. For ``on_failure_callback`` of tasks."""
    settings, ti = load_settings(), context["ti"]
    store = StoreLayout(settings.store_uri)
    error = context.get("exception")
    if getattr(error, "is_told", False):
        return
    cleared = _times_cleared(context) if error is None else _cleared_by_now(context)
    link = run_link(ti.dag_id, ti.run_id, ti.task_id)
    run = AlertedRun(ti.dag_id, ti.run_id, link, cleared)
    if error is None and has_failure_alert(store, run, RUN_FAILURES):
        # The heartbeat was lost and Airflow calls when the run has ended already: another alert
        # was first, and this call knows no more.
        return
    # Each instance of a mapped task gets an alert of its own.
    name = ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"
    alert = raise_about_run(
        store,
        run,
        Cause.TASK_FAILED,
        detail=name,
        summary=getattr(error, "summary", f"task {name} failed"),
        reason=f"Task {name}, try {ti.try_number}: "
        f"{describe(error, with_text=settings.alert_with_text)}",
        with_text=settings.alert_with_text,
        remedy=_remedy(error),
    )
    announce(store, alert)


def run_failed(context: Any) -> None:
    """Raise an alert for a failed run unless it has one. For ``on_failure_callback`` of DAGs."""
    dag_id, run_id = context["dag"].dag_id, context["run_id"]
    failed = tuple(known_failed_tasks(dag_id, run_id))
    cleared = _times_cleared(context)
    _run_was_ended(
        AlertedRun(dag_id, run_id, times_cleared=cleared, failed_tasks=failed),
        summary="the run failed",
        reason=f"Airflow ended the run as failed: {context.get('reason') or 'no reason given'}. No "
        "task of it reported a failure.",
    )


def run_was_ended(context: Any, *, summary: str, reason: str) -> None:
    """Raise an alert for a failed run unless it has one.

    The run's last task calls this itself instead of leaving it to Airflow's callbacks. Airflow
    calls for the task and for the run, in two processes, and only the task knows who ended the run.

    :param context: the context of that task.
    """
    _run_was_ended(ended_run(context), summary=summary, reason=reason)


def ended_run(context: Any, failed: Iterable[str] = ()) -> AlertedRun:
    """Return a task's run for alerts that say how it has ended.

    :param failed: the tasks that have failed; none, if a person has ended the run, so that what was
        told of them before does not count.
    """
    run = context["dag_run"]
    cleared = _cleared_by_now(context)
    return AlertedRun(run.dag_id, run.run_id, times_cleared=cleared, failed_tasks=tuple(failed))


def _run_was_ended(run: AlertedRun, *, summary: str, reason: str) -> None:
    settings = load_settings()
    store = StoreLayout(settings.store_uri)
    if has_failure_alert(store, run):
        return
    alert = raise_about_run(
        store,
        replace(run, link=run_link(run.dag_id, run.run_id)),
        Cause.RUN_FAILED,
        summary=summary,
        reason=reason,
        with_text=settings.alert_with_text,
    )
    announce(store, alert)


def _cleared_by_now(context: Any) -> int | None:
    """Return how often the run of a task was cleared. For calls in the task's own process.

    The count in the task's context is out of date if another task was cleared since.
    """
    run = context["dag_run"]
    try:
        return times_cleared(run.dag_id, run.run_id)
    except AirflowRuntimeError as error:
        log.warning("Airflow does not say how often the run was cleared: %s", error)
        return _times_cleared(context)


def _times_cleared(context: Any) -> int | None:
    """Return how often a run was cleared, by the callback's context; None: it does not say."""
    run = context.get("dag_run")
    return None if run is None else run.clear_number or 0


def maintenance_failed(context: Any) -> None:
    """Raise an alert for a failed maintenance DAG, at most one a day. For DAGs that run often."""
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


def _remedy(error: Any) -> str:
    unstated = Remedy.MEND_AND_CLEAR if isinstance(error, _OWN) else ""
    return str(getattr(error, "remedy", unstated))


def describe(error: Any, *, with_text: bool) -> str:
    """Return why a task failed.

    The message of an exception may quote corpus text, such as a job's last log line. Messages of
    the pipeline's own errors are quoted in full. For failures of TPU tasks only the first line is
    quoted, which is the pipeline's own too.

    :param error: the exception; None: Airflow gives none, as after a lost heartbeat.
    :param with_text: whether text may be quoted.
    """
    if error is None:
        return (
            "it ended without saying why: it could not begin, its process was killed, or its "
            "heartbeat was lost. Look at the machine's load and memory, and the scheduler's log."
        )
    kind, message = type(error).__name__, str(error)
    is_of_tpu = getattr(error, "kind", None) is not None
    if isinstance(error, _OWN) or (getattr(error, "remedy", None) is not None and not is_of_tpu):
        return message
    if with_text:
        return f"{kind}: {message}"
    if is_of_tpu:
        return f"{kind}: {message.partition(chr(10))[0]}"
    return f"{kind}. Its message is not quoted, as it may hold corpus text: see the task's log."
