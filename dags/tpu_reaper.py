"""Every ten minutes, deletes TPUs of ours that nobody releases any more.

The main DAG's teardown gives every TPU back. This DAG is for the cases in which no teardown runs:
a paused or deleted DAG, a `dagrun_timeout`, a failed delete, a scheduler that was down. It goes by
labels: a TPU of this installation's owner is deleted when its `expires-at` has passed, when its
reservation was released, when its run gave it up, or when it failed and still takes a name. TPUs
of other owners are never touched.

It logs an error whenever it had to act: then find out why the teardown did not. Each pass leaves a
sign of life in the store: `python -m tpu_lifecycle reaper-status` exits with 1 when there was none
lately, and every run of the main DAG warns of it. If Airflow itself may be down, run the same from
cron: `python -m tpu_lifecycle reap --once --store URI --project PROJECT`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from alerting.wiring import dag_defaults, maintenance_alerting
from operators.tpu import TpuReaperOperator
from pipeline_config import load_preset
from pipeline_config.settings import load_settings

settings = load_settings()

with DAG(
    dag_id="tpu_reaper",
    doc_md=__doc__,
    schedule="*/10 * * * *",
    max_active_runs=1,
    is_paused_upon_creation=False,
    tags=["tpu", "maintenance"],
    **dag_defaults(settings.owner, retry_delay=timedelta(minutes=1)),
    **maintenance_alerting(),
) as dag:
    TpuReaperOperator(
        task_id="reap",
        store_uri=settings.store_uri,
        gcp_conn_id=settings.gcp_conn_id,
        zones=load_preset(settings.preset).tpu.zones,
    )
