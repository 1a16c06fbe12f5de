"""What Airflow calls when a run misses its deadline. Runs in the triggerer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from alerting.announcing import run_link
from pipeline_alerts.raising import AlertedRun, raise_about_run
from pipeline_alerts.running import overdue
from pipeline_config.settings import load_settings
from pipeline_store import uris
from pipeline_store.layout import StoreLayout


async def report(context: dict[str, Any] | None = None) -> None:
    """Raise the alert; the watch delivers it. The triggerer has better to do than to wait for mail.

    :param context: ``dag_run``, as Airflow's REST API shows it.
    """
    if context is not None:
        await asyncio.to_thread(raise_overdue, context["dag_run"])


def raise_overdue(dag_run: dict[str, Any]) -> None:
    """Raise an alert about a run that should have ended by now.

    Airflow keeps the deadline of a run that failed in time; that is nothing to tell.

    :param dag_run: ``dag_id``, ``dag_run_id``, ``state`` and ``queued_at``.
    """
    settings = load_settings()
    store = StoreLayout(settings.store_uri)
    dag_id, run_id = dag_run["dag_id"], dag_run["dag_run_id"]
    run = AlertedRun(dag_id, run_id, run_link(dag_id, run_id))
    if dag_run.get("state") in ("success", "failed") or uris.exists(store.run(run.key).outcome):
        return
    limit = timedelta(hours=settings.overdue_hours)
    queued = dag_run.get("queued_at")
    since = datetime.fromisoformat(queued) if queued else datetime.now(UTC) - limit
    finding = overdue(since, limit)
    raise_about_run(
        store,
        run,
        finding.cause,
        summary=finding.summary,
        reason=finding.reason,
        with_text=settings.alert_with_text,
    )
