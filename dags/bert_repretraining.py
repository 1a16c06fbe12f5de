"""Re-pretrains BERT on one partition of a corpus and promotes the result if it is better.

```
                       ┌──────────────── TPU ────────────────┐
validate ▶ vocabulary ▶ prepare ▶ plan ▶ reserve ▶ create ▶ train ▶ evaluate ▶ delete
                                                                       └▶ judge ▶ export ▶ promote
```

* **Starts** by schedule (each day the day before's partition), by *Trigger* with the form below, by
  REST with a `partition_key`, or as a backfill over older partitions.
* **validate** refuses an impossible request within seconds, one line per reason.
* **create … delete** rent the TPU and always give it back; `delete` is a teardown and runs whatever
  happens. No worker slot is held while the TPU is waited for or trains.
* **judge** compares with the model in use on the same held-out documents; **export** writes the
  candidate in other formats and checks them. It and **promote** are skipped if the candidate is not
  better.

Settings are explained in `docs/config.md`, what to do when something fails in `docs/tpu.md`.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, CronPartitionTimetable, TaskGroup

from operators.export_model import ExportModelOperator
from operators.prepare_corpus import PrepareCorpusOperator
from operators.python_module import PythonModuleOperator
from operators.repretraining import (
    JudgeOperator,
    PlanJobsOperator,
    PromoteOperator,
    ValidateRunOperator,
)
from operators.tpu import (
    PATIENT_RETRIES,
    TpuCreateOperator,
    TpuDeleteOperator,
    TpuReserveOperator,
    TpuRunOperator,
)
from pipeline_config import load_preset
from pipeline_config.settings import load_settings
from trigger_form import trigger_form

settings = load_settings()

with DAG(
    dag_id="bert_repretraining",
    doc_md=__doc__,
    # One partition a day, the day before's. Partition keys are dates, as the corpus folders are.
    schedule=CronPartitionTimetable(
        settings.schedule, timezone="UTC", run_offset=-1, key_format="%Y-%m-%d"
    ),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    params=trigger_form(load_preset(settings.preset)),
    tags=["bert", "tpu", "pretraining"],
    default_args={
        "owner": settings.owner,
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
    },
) as dag:
    store = {"store_uri": settings.store_uri}
    validate = ValidateRunOperator(task_id="validate", preset=settings.preset, **store)
    run_uri = validate.output["run_uri"]
    job = ["--config", validate.output["config_uri"], "--store", settings.store_uri]
    job += ["--partition", validate.output["partition"]]

    with TaskGroup("data"):
        vocabulary = PythonModuleOperator(
            task_id="vocabulary", module="beam_jobs.train_vocabulary", arguments=job
        )
        prepare = PrepareCorpusOperator(
            task_id="prepare",
            arguments=job,
            config_uri=validate.output["config_uri"],
            gcp_conn_id=settings.gcp_conn_id,
        )
        manifest_uri = prepare.output["manifest"]
        plan = PlanJobsOperator(task_id="plan", run_uri=run_uri, manifest_uri=manifest_uri, **store)

    with TaskGroup("tpu"):
        tpu = {"run_uri": run_uri, "gcp_conn_id": settings.gcp_conn_id, **store}
        reserve = TpuReserveOperator(task_id="reserve", **tpu)
        create = TpuCreateOperator(task_id="create", **PATIENT_RETRIES, **tpu)
        train = TpuRunOperator(
            task_id="train",
            job_id="010-train",
            entry_point="training.train",
            arguments=plan.output["train"],
            **PATIENT_RETRIES,
            **tpu,
        )
        evaluate = TpuRunOperator(
            task_id="evaluate",
            job_id="020-evaluate",
            entry_point="training.evaluate",
            arguments=plan.output["evaluate"],
            **PATIENT_RETRIES,
            **tpu,
        )
        delete = TpuDeleteOperator(task_id="delete", **tpu)

    with TaskGroup("promotion"):
        compared = {"run_uri": run_uri, "baseline": plan.output["baseline"]}
        judge = JudgeOperator(task_id="judge", **compared)
        export = ExportModelOperator(task_id="export", **compared, **store)
        promote = PromoteOperator(task_id="promote", manifest_uri=manifest_uri, **compared, **store)

    validate >> vocabulary >> prepare >> plan >> reserve >> create >> train >> evaluate >> delete
    evaluate >> judge >> export >> promote
    # Both are setups: should create fail or be marked failed, reserve's success alone still makes
    # the teardown run. A failed delete fails the run.
    delete.as_teardown(setups=[reserve, create], on_failure_fail_dagrun=True)
