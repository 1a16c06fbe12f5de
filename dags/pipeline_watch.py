"""Every five minutes, looks whether somebody has to know something, and tells.

```
runs in the store ─┐
reaper's last pass ├▶ watch ▶ alerts in the store ▶ mail, Slack, webhook
corpus             ─┘
```

* **Runs** that wait for an approval, that a person or a crash ended, that were rejected, that take
  too long, use up a budget, lose TPU after TPU or stand still, and TPUs that are rented without a
  job or while the DAG is paused. The watch writes the outcome of a run that ended without one.
* **The installation**: a reaper that has fallen silent, a corpus to which nothing is added.
* **Delivery** of every alert that is not delivered yet, also of those that Airflow's callbacks
  raised. Each is told once through each connection of `REPRETRAIN_ALERT_CONN_IDS`.

While Airflow is down, `python -m pipeline_alerts watch-status --deliver`, called by cron, does what
can be done then.

It fails when something could not be looked at or delivered; the next pass tries again. Keep it
unpaused. Causes, connections and a runbook are in `docs/operate/alerts.md`.
"""

from __future__ import annotations

from airflow.sdk import DAG

from alerting.wiring import dag_defaults, maintenance_alerting
from operators.watch import WatchOperator
from pipeline_config import load_preset
from pipeline_config.settings import load_settings

settings = load_settings()

with DAG(
    dag_id="pipeline_watch",
    doc_md=__doc__,
    schedule="*/5 * * * *",
    max_active_runs=1,
    is_paused_upon_creation=False,
    tags=["alerts", "maintenance"],
    **dag_defaults(settings.owner),
    **maintenance_alerting(),
) as dag:
    WatchOperator(
        task_id="watch",
        store_uri=settings.store_uri,
        input_pattern=load_preset(settings.preset).corpus.input_pattern,
    )
