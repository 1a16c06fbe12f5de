"""Every five minutes, pushes to the Hugging Face Hub what it does not have of model versions.

```
store ▶ push ▶ a private repository per lineage: `main` is the version in use, each version a tag
```

This DAG is there only with `REPRETRAIN_HUB_REPOSITORY`. It reads the store and writes to the Hub,
with the token of the connection `REPRETRAIN_HUB_CONN_ID`; without one it only says what it would
push. Nothing waits for it. While the Hub is away its runs fail; the first one after that adds all
that is missing. More in `docs/guides/hugging-face-hub.md`.
"""

from __future__ import annotations

from airflow.sdk import DAG

from pipeline_config.settings import load_settings

settings = load_settings()

if settings.hub_repository:
    # Nothing of it is imported where it is off.
    from alerting.wiring import dag_defaults, maintenance_alerting
    from operators.mirror import HubMirrorOperator

    with DAG(
        dag_id="hub_mirror",
        doc_md=__doc__,
        schedule="*/5 * * * *",
        # The Hub refuses the slower one of two commits at once.
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=["maintenance", "hugging-face"],
        **dag_defaults(settings.owner),
        **maintenance_alerting(),
    ) as dag:
        HubMirrorOperator(
            task_id="push", store_uri=settings.store_uri, hub_conn_id=settings.hub_conn_id
        )
