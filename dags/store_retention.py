"""Every week says what of the store is old and needed by nobody; removes it only when asked to.

```
model in use ─▶ versions to roll back to ─▶ manifests ─▶ shards      stay
runs that go on, hold or wait for the lineage, or ended lately       stay
records of all runs and versions: what was done, and why             stay for ever
checkpoints of ended runs, old versions, superseded data, old tries  can go
```

The task's log has what would go, by kind and in bytes, and why each version stays. To remove it,
press *Trigger* and switch `delete` on; a scheduled run only reports. A run that is killed in the
middle harms nothing; the next one goes on.

The same by hand: `python -m model_registry.prune`. All rules are in `docs/operate/retention.md`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from alerting.wiring import dag_defaults, maintenance_alerting
from operators.retention import StoreRetentionOperator
from pipeline_config.settings import load_settings

settings = load_settings()

with DAG(
    dag_id="store_retention",
    doc_md=__doc__,
    schedule="0 3 * * 0",
    max_active_runs=1,
    is_paused_upon_creation=True,
    params={
        "delete": Param(
            False,
            type="boolean",
            description="Remove what can go. Off: only say what would go.",
        ),
        "keep_versions": Param(
            5,
            type="integer",
            minimum=1,
            description="Nearest ancestors of the model in use, and newest versions, that stay.",
        ),
        "older_than_days": Param(
            14,
            type="number",
            minimum=2,
            description="Nothing younger is touched.",
        ),
        "confirm": Param(
            False,
            type="boolean",
            description="Remove although nothing was written for a day, or most versions would go: "
            "look at a report first, as with a wrong clock all would look old.",
        ),
    },
    tags=["store", "maintenance"],
    **dag_defaults(settings.owner, retry_delay=timedelta(minutes=5)),
    **maintenance_alerting(),
) as dag:
    StoreRetentionOperator(
        task_id="prune",
        store_uri=settings.store_uri,
        delete="{{ params.delete }}",
        keep_versions="{{ params.keep_versions }}",
        older_than_days="{{ params.older_than_days }}",
        confirm="{{ params.confirm }}",
    )
