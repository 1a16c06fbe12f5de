"""Tasks that show what the stack does with logs, deferred tasks and running processes."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pendulum
from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync
from airflow.sdk import DAG, task

with DAG("probe", schedule="@daily", catchup=False, params={"greeting": "hello"}):

    @task
    def greet(greeting: str) -> None:
        """Log one line."""
        print("greeting:", greeting)

    greet("{{ params.greeting }}")

with DAG("probe_waiting", schedule=None):

    @task
    def hold() -> None:
        """Start a process of its own session and wait for it for an hour."""
        with subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
        ) as child:
            print("holding", child.pid, flush=True)

    hold()
    DateTimeSensorAsync(
        task_id="deferred",
        target_time=pendulum.datetime(2199, 1, 1),
        timeout=timedelta(hours=2),
    )
