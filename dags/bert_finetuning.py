"""Fine-tunes and evaluates classifiers from the re-pretrained BERT on labelled tasks; or a T5.

```
                                       ┌────── TPU (mapped: one group per TPU) ──────┐
validate ▶ prepare (mapped: tasks) ▶ plan ▶ reserve ▶ create ▶ finetune ▶ delete
                                       │                          └▶ report
                                       ├─────────────────────────────────┴▶ export ▶ compress ▶ end
                                       └▶ predict ───────────────────────────────────────────┘
```

* **Starts** by *Trigger* with the form below, by REST, by `REPRETRAIN_FINETUNING_SCHEDULE`, or
  after a promotion, by the DAG `promoted_models`.
* **validate** refuses an impossible request within seconds, one line per reason, and says first
  what the run will cost: an estimate.
* **prepare** turns each task's files into records; what is prepared already is left alone. With
  `text_to_text.init_checkpoint` it checks and copies the texts that a T5 is to learn from.
* **plan** decides once what is trained: each task with each model, learning rate and seed. It
  shares these trainings out to `finetuning.parallel_tpus`.
* **create … delete** rent a TPU and always give it back; `delete` is a teardown and runs whatever
  happens to the others. A training that is interrupted goes on from its newest checkpoint.
* **report** puts the scores of all seeds together, and says whether re-pretraining has paid.
* **export** writes the best classifier of each task in `finetuning.export_formats`; **compress**
  makes the smaller models of `compression.children` of it; **predict** labels the files of the
  task's `predict`. In the modes `export` and `predict` no TPU is rented.
* **end** records how the run ended, and fails with it: a teardown that runs whatever happens.

Settings are explained in `docs/reference/config.md`, tasks in `docs/reference/finetuning-data.md`
and `docs/guides/text-to-text.md`, what to do when something fails in `docs/explain/tpu.md`.
"""

from __future__ import annotations

from airflow.sdk import DAG, TriggerRule, task_group

from alerting.wiring import dag_defaults, run_alerting, task_alerting
from operators.classifiers import (
    CompressClassifiersOperator,
    ExportClassifiersOperator,
    PredictOperator,
)
from operators.finetuning import (
    PlanFinetuningOperator,
    PrepareTaskOperator,
    ReportFinetuningOperator,
    TpuFinetuneOperator,
    ValidateFinetuningOperator,
)
from operators.run_end import EndRunOperator
from operators.tpu import (
    PATIENT_RETRIES,
    TpuCreateOperator,
    TpuDeleteOperator,
    TpuReserveOperator,
)
from pipeline_config import load_finetuning_preset
from pipeline_config.settings import load_settings
from trigger_form import trigger_form

settings = load_settings()
store = {"store_uri": settings.store_uri}


@task_group(group_id="tpu")
def rent_tpu(run_uri: str, arguments: list[str]) -> TpuFinetuneOperator:
    """Rent a TPU, train on it, and give it back; Airflow makes one such group per TPU.

    What a TPU is for, the tasks find in the store, by their group's number.
    """
    tpu = {"gcp_conn_id": settings.gcp_conn_id, **store}
    reserve = TpuReserveOperator(task_id="reserve", **tpu)
    create = TpuCreateOperator(task_id="create", **PATIENT_RETRIES, **tpu)
    finetune = TpuFinetuneOperator(
        task_id="finetune", job_id="010-finetune", **PATIENT_RETRIES, **tpu
    )
    delete = TpuDeleteOperator(task_id="delete", **tpu)
    reserve >> create >> finetune >> delete
    # Both are setups: should create fail or be marked failed, reserve's success alone still makes
    # the teardown run. A failed delete fails the run.
    delete.as_teardown(setups=[reserve, create], on_failure_fail_dagrun=True)
    return finetune


with DAG(
    dag_id="bert_finetuning",
    doc_md=__doc__,
    schedule=settings.finetuning_schedule or None,
    max_active_runs=4,
    params=trigger_form(
        load_finetuning_preset(settings.finetuning_preset), settings.locked_settings
    ),
    tags=["bert", "tpu", "finetuning"],
    **dag_defaults(settings.owner, **task_alerting()),
    **run_alerting(),
) as dag:
    validate = ValidateFinetuningOperator(
        task_id="validate",
        preset=settings.finetuning_preset,
        gcp_conn_id=settings.gcp_conn_id,
        **store,
    )
    prepare = PrepareTaskOperator.partial(
        task_id="prepare",
        gcp_conn_id=settings.gcp_conn_id,
        map_index_template="{{ task.task_name }}",
        max_active_tis_per_dag=2,
        **store,
    ).expand(task_name=validate.output)
    # Modes that only use classifiers prepare nothing, and some train nothing: what comes after
    # what they skip runs all the same.
    after_skips = {"trigger_rule": TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS}
    plan = PlanFinetuningOperator(task_id="plan", **after_skips, **store)
    rented = rent_tpu.expand_kwargs(plan.output)
    report = ReportFinetuningOperator(task_id="report", **store)
    export = ExportClassifiersOperator(task_id="export", **after_skips, **store)
    compress = CompressClassifiersOperator(task_id="compress", **after_skips, **store)
    predict = PredictOperator(task_id="predict", **store)
    end = EndRunOperator(task_id="end", **store)

    validate >> [prepare, plan]
    prepare >> plan >> rented >> report
    [plan, report] >> export
    [plan, report, export] >> compress
    plan >> predict
    # Of the TPUs, too: report fails at once with the first training that fails.
    [prepare, rented, report, export, compress, predict] >> end
    end.as_teardown(on_failure_fail_dagrun=True)
