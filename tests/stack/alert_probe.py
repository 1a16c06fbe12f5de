"""A DAG file for the tests of alerts: a run that is recorded as the pipeline's are, and works.

No test module: the tests put it into a DAG folder of their own.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from alerting.wiring import run_alerting, task_alerting
from pipeline_config.settings import load_settings
from pipeline_store.formats import RunRecord
from pipeline_store.identity import run_key
from pipeline_store.layout import StoreLayout


@task
def work(dag_run: Any = None) -> None:
    """Write what the validate task writes, then go on until somebody ends it."""
    key = run_key(dag_run.dag_id, dag_run.run_id)
    RunRecord(
        run_key=key,
        dag_id=dag_run.dag_id,
        run_id=dag_run.run_id,
        partition="2026-01-01",
        lineage_id="default",
        config_sha256="0" * 64,
        created=datetime.now(UTC),
    ).create(StoreLayout(load_settings().store_uri).run(key).record)
    time.sleep(600)


@task
def after() -> None:
    """Come after the work: marking a run failed skips this, and Airflow calls the run a success."""


with DAG(
    "alert_probe",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    default_args={"retries": 0, **task_alerting()},
    **run_alerting(),
) as dag:
    work() >> after()
