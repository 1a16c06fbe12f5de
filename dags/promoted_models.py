"""Starts one fine-tuning run for each model that comes into use.

```
event of the asset promoted_model ▶ receive ▶ start
(key = lineage and version)                    └──▶ a run of the DAG bert_finetuning
                                                    (conf: encoder.version)
```

* **Who announces**: the task `promote` of `bert_repretraining`, and `model_rollback`.
* **receive** is skipped, with the reason, where nothing is to be fine-tuned: the preset
  (`REPRETRAIN_FINETUNING_PRESET`) names no task, or the model is of another lineage.
* **start** starts the run `promotion__<version>`, or is skipped when it exists: a model that comes
  into use again, by a rollback, is not fine-tuned again.

This is a DAG of its own so that `bert_finetuning` can have a schedule by time: in Airflow 3.3.2 a
DAG that listens to events with a partition key cannot.
"""

from __future__ import annotations

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, IdentityMapper, PartitionedAssetTimetable

from alerting.wiring import dag_defaults, maintenance_alerting
from operators.pipeline_assets import PROMOTED_MODEL
from operators.promoted_models import ReceiveModelOperator
from pipeline_config.settings import load_settings

settings = load_settings()

with DAG(
    dag_id="promoted_models",
    doc_md=__doc__,
    schedule=PartitionedAssetTimetable(
        assets=PROMOTED_MODEL, default_partition_mapper=IdentityMapper()
    ),
    tags=["bert", "finetuning"],
    **dag_defaults(settings.owner),
    **maintenance_alerting(),
) as dag:
    receive = ReceiveModelOperator(
        task_id="receive", store_uri=settings.store_uri, preset=settings.finetuning_preset
    )
    start = TriggerDagRunOperator(
        task_id="start",
        trigger_dag_id="bert_finetuning",
        trigger_run_id=receive.output["run_id"],
        conf=receive.output["conf"],
        # Without one, as the runs that people trigger: two models may come into use at one moment.
        logical_date=None,
        skip_when_already_exists=True,
    )
    receive >> start
