"""Every five minutes, adds to MLflow what it does not have of runs and models.

```
store ▶ mlflow ▶ experiments, runs, registered models, the alias `production`
```

This DAG is there only with `REPRETRAIN_MLFLOW_MIRROR=1`. It reads the store and writes to the
server of `MLFLOW_TRACKING_URI`; nothing waits for it. While MLflow is away its runs fail; the first
one after that adds all that is missing. More in `docs/guides/sharing.md`.
"""

from __future__ import annotations

from airflow.sdk import DAG

from pipeline_config.settings import load_settings

settings = load_settings()

if settings.mlflow_mirror:
    # Nothing of it is imported where it is off.
    from alerting.wiring import dag_defaults, maintenance_alerting
    from operators.mirror import MlflowMirrorOperator

    with DAG(
        dag_id="model_mirror",
        doc_md=__doc__,
        schedule="*/5 * * * *",
        # Two passes at once would add a version twice.
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=["maintenance", "mlflow"],
        **dag_defaults(settings.owner),
        **maintenance_alerting(),
    ) as dag:
        MlflowMirrorOperator(task_id="mlflow", store_uri=settings.store_uri)
