"""Starts one run of the main DAG for each partition of the corpus that is announced.

```
event of the asset corpus_partition ▶ receive ▶ start ▶ remember
(key = partition)                                 └──▶ a run of the DAG bert_repretraining
                                                       (conf: corpus.partition = key)
```

* **Who announces**: the DAG `corpus_watch`, or any program by REST (`POST /api/v2/assets/events`
  with `asset_id` and `partition_key`).
* **receive** looks at the partition's files. Their names and sizes give the id of the run,
  `arrival__<partition>__<hash>`.
* **start** starts that run, or is skipped when it exists: an event that comes twice starts nothing
  twice. New or changed files in an old partition are another run.
* **remember** writes down that the partition has its run.

This is a DAG of its own because one that listens to events cannot be backfilled. More in
`docs/guides/arrivals.md`.
"""

from __future__ import annotations

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, IdentityMapper, PartitionedAssetTimetable

from alerting.wiring import dag_defaults, maintenance_alerting
from operators.arrivals import ReceivePartitionOperator, RememberStartOperator
from operators.pipeline_assets import CORPUS_PARTITION
from pipeline_config.settings import load_settings

settings = load_settings()

with DAG(
    dag_id="corpus_arrivals",
    doc_md=__doc__,
    schedule=PartitionedAssetTimetable(
        assets=CORPUS_PARTITION, default_partition_mapper=IdentityMapper()
    ),
    tags=["bert", "corpus"],
    **dag_defaults(settings.owner),
    **maintenance_alerting(),
) as dag:
    corpus = {"store_uri": settings.store_uri, "preset": settings.preset}
    receive = ReceivePartitionOperator(task_id="receive", **corpus)
    partition, run_id = "{{ dag_run.partition_key }}", receive.output["run_id"]
    start = TriggerDagRunOperator(
        task_id="start",
        trigger_dag_id="bert_repretraining",
        trigger_run_id=run_id,
        conf={"corpus.partition": partition},
        # Without one, as the runs that people trigger: two partitions may arrive at one moment.
        logical_date=None,
        skip_when_already_exists=True,
    )
    remember = RememberStartOperator(
        task_id="remember",
        partition=partition,
        run_id=run_id,
        # Also when the run existed already.
        trigger_rule="none_failed",
        **corpus,
    )
    receive >> start >> remember
