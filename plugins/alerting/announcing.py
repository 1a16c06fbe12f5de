"""Delivers new alerts and makes links into Airflow, for callbacks and the watch."""

from __future__ import annotations

import logging
from urllib.parse import quote

from alerting.channels import ConnectionChannel
from pipeline_alerts.delivery import deliver
from pipeline_config.settings import load_settings
from pipeline_store.formats import Alert
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.service.backend import TpuState


def tpu_of(reservation: OpenReservation, record: AttemptRecord) -> TpuState | None:
    """Return the state of an attempt's TPU; None when the service cannot be asked now.

    Uses the installation's connection, ``REPRETRAIN_GCP_CONN_ID``.
    """
    # Imported late: Google's provider is slow to load, and few passes need it.
    from hooks.tpu import TpuHook

    try:
        hook = TpuHook(load_settings().gcp_conn_id, role="watch")
        return hook.backend(reservation.record.project_id).describe(record.name)
    except Exception as error:  # noqa: BLE001 - the store alone says enough for an alert
        log.warning("The TPU service cannot be asked for %s: %r", record.name, error)
        return None


log = logging.getLogger(__name__)


def channels() -> list[ConnectionChannel]:
    """Return a channel for each connection in ``REPRETRAIN_ALERT_CONN_IDS``."""
    return [ConnectionChannel(conn_id) for conn_id in load_settings().alert_conn_ids]


def announce(store: StoreLayout, alert: Alert | None) -> None:
    """Deliver a new alert through every channel; the watch retries failed deliveries.

    :param alert: None: the alert existed already, and nothing is sent.
    """
    if alert is None:
        return
    log.error("ALERT %s (%s/%s): %s", alert.title, alert.scope, alert.cause, alert.reason)
    for channel in channels():
        failure = deliver(store, alert, channel)
        if failure is not None:
            log.error("%s; the pipeline_watch DAG tries again", failure)


def run_link(dag_id: str, run_id: str, task_id: str | None = None) -> str:
    """Return the address of the page of a DAG run, or of one of its tasks, in Airflow."""
    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback="http://localhost:8080").rstrip("/")
    page = f"{base}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
    return f"{page}/tasks/{quote(task_id, safe='')}" if task_id else page


def answer_link(dag_id: str, run_id: str) -> str:
    """Return the address of the page where a person answers a DAG run's question."""
    return f"{run_link(dag_id, run_id)}/required_actions"
