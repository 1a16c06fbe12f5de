"""Re-pretrains BERT on one partition of a corpus and promotes the result if it is better.

```
validate ▶ vocabulary ▶ prepare ▶ claim ▶ import ▶ plan ▶ probe_data ▶ ┐
   ┌───────────────────────────────────────────────────────────────────┘
   │  ┌─────────────────────── TPU ────────────────────────┐
   └▶ reserve ▶ create ▶ train ▶ evaluate ▶ probe ▶ delete
                                              └▶ judge ▶ approve ▶ export ▶ promote ▶ release
```

* **Starts** by schedule (each day the day before's partition), by *Trigger* with the form below, by
  REST with a `partition_key`, by a partition's arrival, or as a backfill over older partitions.
* **validate** refuses an impossible request within seconds, one line per reason.
* **claim … release**: one run at a time continues a lineage of models; of those that wait the
  smallest partition comes first. No TPU is rented while waiting. **import** makes the published
  model that a lineage begins with its first version. **plan** skips the rest if the model in use
  has seen the partition as it is.
* **create … delete** rent the TPU and always give it back; `delete` is a teardown and runs whatever
  happens. No worker slot is held while the TPU is waited for or trains.
* **judge** compares with the model in use on the same held-out documents; **approve** asks a
  person, if `promotion.require_approval` says so; **export** writes the candidate in other formats
  and checks them. They and **promote** are skipped if the candidate is not better.
* **probe_data** and **probe** fine-tune both models on the labelled tasks of
  `promotion.probe_tasks`, for **judge** to compare. Without such tasks they are skipped.

Settings are explained in `docs/reference/config.md`, what to do when something fails in
`docs/explain/tpu.md`.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronPartitionTimetable, TaskGroup, TriggerRule

from alerting.wiring import dag_defaults, run_alerting, task_alerting
from operators.approval import ApproveOperator
from operators.export_model import ExportModelOperator
from operators.import_model import ImportModelOperator
from operators.lineage import ClaimLineageOperator, ReleaseLineageOperator
from operators.plan import PlanJobsOperator
from operators.prepare_corpus import PrepareCorpusOperator, TrainVocabularyOperator
from operators.pretraining import TpuEvaluateOperator, TpuTrainOperator
from operators.probe import ProbeDataOperator, TpuProbeOperator
from operators.promotion import JudgeOperator, PromoteOperator
from operators.tpu import (
    PATIENT_RETRIES,
    TpuCreateOperator,
    TpuDeleteOperator,
    TpuReserveOperator,
)
from operators.validate import ValidateRunOperator
from pipeline_config import load_preset
from pipeline_config.settings import load_settings
from trigger_form import trigger_form

settings = load_settings()

with DAG(
    dag_id="bert_repretraining",
    doc_md=__doc__,
    # One partition a day, the day before's. Partition keys are dates, as the corpus folders are.
    schedule=CronPartitionTimetable(
        settings.schedule, timezone="UTC", run_offset=-1, key_format=settings.partition_format
    ),
    # So many prepare their data at once; which of a lineage's runs trains, its lease decides.
    max_active_runs=16,
    params=trigger_form(load_preset(settings.preset), settings.locked_settings),
    tags=["bert", "tpu", "pretraining"],
    **dag_defaults(settings.owner, **task_alerting()),
    **run_alerting(),
) as dag:
    store = {"store_uri": settings.store_uri}
    validate = ValidateRunOperator(
        task_id="validate", preset=settings.preset, gcp_conn_id=settings.gcp_conn_id, **store
    )

    with TaskGroup("data"):
        vocabulary = TrainVocabularyOperator(task_id="vocabulary", **store)
        prepare = PrepareCorpusOperator(
            task_id="prepare",
            gcp_conn_id=settings.gcp_conn_id,
            # Each takes all cores of its machine.
            max_active_tis_per_dag=2,
            **store,
        )

    with TaskGroup("lineage"):
        claim = ClaimLineageOperator(task_id="claim", **store)
        import_model = ImportModelOperator(task_id="import", **store)
        plan = PlanJobsOperator(task_id="plan", **store)
        # Before a TPU is rented: labelled text that cannot be used costs nothing.
        probe_data = ProbeDataOperator(
            task_id="probe_data",
            gcp_conn_id=settings.gcp_conn_id,
            max_active_tis_per_dag=2,
            **store,
        )

    # For what comes after a task that is skipped without labelled tasks.
    after_probes = {"trigger_rule": TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS}

    with TaskGroup("tpu"):
        tpu = {"gcp_conn_id": settings.gcp_conn_id, **store}
        reserve = TpuReserveOperator(task_id="reserve", **after_probes, **tpu)
        create = TpuCreateOperator(task_id="create", **PATIENT_RETRIES, **tpu)
        job = PATIENT_RETRIES | tpu
        train = TpuTrainOperator(task_id="train", job_id="010-train", **job)
        evaluate = TpuEvaluateOperator(task_id="evaluate", job_id="020-evaluate", **job)
        probe = TpuProbeOperator(task_id="probe", job_id="030-probe", **job)
        delete = TpuDeleteOperator(task_id="delete", **tpu)

    with TaskGroup("promotion"):
        judge = JudgeOperator(task_id="judge", **after_probes, **store)
        approve = ApproveOperator(task_id="approve", **store)
        export = ExportModelOperator(task_id="export", **store)
        promote = PromoteOperator(task_id="promote", **store)
        release = ReleaseLineageOperator(task_id="release", **store)

    validate >> vocabulary >> prepare >> claim >> import_model >> plan
    plan >> probe_data >> reserve >> create >> train >> evaluate >> probe >> delete
    plan >> reserve
    probe_data >> probe
    [evaluate, probe] >> judge >> approve >> export >> promote >> release
    # Both are setups: should create fail or be marked failed, reserve's success alone still makes
    # the teardown run. A failed delete fails the run.
    delete.as_teardown(setups=[reserve, create], on_failure_fail_dagrun=True)
    # After it has given the lineage back it fails if the run has: then the run is red, whatever a
    # person marked its tasks as.
    release.as_teardown(setups=[claim], on_failure_fail_dagrun=True)
