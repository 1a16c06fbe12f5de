"""Every ten minutes, looks whether partitions of the corpus have arrived, and announces them.

```
corpus folder or bucket ▶ look
                           └── event of the asset corpus_partition ──▶ DAG corpus_arrivals
                               (key = partition)
```

* **Where** it looks is the `corpus.input_pattern` of the installation's preset.
* **New** is a partition that was not there at the first look, or whose files' names or sizes have
  changed since it was given to a run. The first look announces nothing: run what is there already
  by a backfill.
* **Settled** is a partition with a file `_READY` or `_SUCCESS` in its folder, or one of which two
  looks, at least five minutes apart, saw the same files. Until then it waits; the log says why.
* A look that finds nothing to announce is *skipped*. A partition is announced again at each look
  until `corpus_arrivals` has started a run for it, so nothing is lost while that is paused.

More in `docs/guides/arrivals.md`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from alerting.wiring import dag_defaults, maintenance_alerting
from operators.arrivals import WatchCorpusOperator
from pipeline_config.settings import load_settings

settings = load_settings()

with DAG(
    dag_id="corpus_watch",
    doc_md=__doc__,
    schedule="*/10 * * * *",
    max_active_runs=1,
    tags=["bert", "corpus"],
    **dag_defaults(settings.owner),
    **maintenance_alerting(),
) as dag:
    WatchCorpusOperator(
        task_id="look",
        store_uri=settings.store_uri,
        preset=settings.preset,
        settle=timedelta(minutes=5),
    )
