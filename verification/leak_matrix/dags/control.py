"""The control: "create >> run >> delete with a trigger rule", as public TPU DAGs are written.

Plain Python tasks around the plain client: a new name in each create, the name passed on by XCom, a
blocking wait for the work, no ``on_kill``, and a delete task that runs whatever the outcome of the
others. The matrix puts it through the same scenarios to show what it leaves behind.
"""

from __future__ import annotations

import shlex
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, TriggerRule, get_current_context, task

from verification.leak_matrix.scenario import Scenario, run_folder

PROJECT = "local-project"
POLL_SECONDS = 1.0
WAIT_SECONDS = 120.0
SCRIPT = """#!/bin/sh
touch {folder}/started
while [ ! -e {folder}/finish ]; do sleep 0.3; done
touch {folder}/done
"""


def control_dag(scenario: Scenario, store_uri: str, conn_id: str) -> DAG:
    """Return the control DAG for a scenario, which modifies it as it modifies ours."""
    shape = scenario.shape
    with DAG(
        dag_id=scenario.control_dag_id,
        schedule="@daily" if shape.daily else None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        end_date=pendulum.datetime(2026, 1, 10, tz="UTC") if shape.daily else None,
        catchup=False,
        dagrun_timeout=timedelta(seconds=shape.dagrun_timeout) if shape.dagrun_timeout else None,
        default_args={"retries": shape.control_retries, "retry_delay": timedelta(seconds=2)},
    ) as dag:

        @task
        def create() -> str:
            context = get_current_context()
            zone = (context["dag_run"].conf or {})["zones"][0]
            folder = run_folder(store_uri, context["dag"].dag_id, context["run_id"])
            folder.mkdir(parents=True, exist_ok=True)
            name = _create(conn_id, zone, f"control-{uuid.uuid4().hex[:8]}", folder)
            if shape.create_raises:
                raise RuntimeError(f"{name} is ACTIVE, and this task fails")
            return name

        @task
        def run(name: str) -> str:
            context = get_current_context()
            folder = run_folder(store_uri, context["dag"].dag_id, context["run_id"])
            while not (folder / "done").exists():
                time.sleep(POLL_SECONDS)
            return name

        @task(trigger_rule=TriggerRule.ALL_DONE)
        def delete(name: str | None) -> None:
            _delete(conn_id, name)

        name: Any = create()
        run(name) >> delete(name)
    return dag


def _client(conn_id: str) -> Any:
    import grpc
    from airflow.sdk import Connection
    from google.api_core.gapic_v1.client_info import ClientInfo
    from google.cloud.tpu_v2 import TpuClient
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    endpoint = Connection.get(conn_id).extra_dejson["tpu_api_endpoint"]
    transport = TpuGrpcTransport(host=endpoint, channel=grpc.insecure_channel(endpoint))
    return TpuClient(transport=transport, client_info=ClientInfo(user_agent="control"))


def _create(conn_id: str, zone: str, name: str, folder: Path) -> str:
    from google.cloud import tpu_v2

    parent = f"projects/{PROJECT}/locations/{zone}"
    node = tpu_v2.Node(
        accelerator_type="v5litepod-1",
        runtime_version="v2-alpha-tpuv5-lite",
        metadata={"startup-script": SCRIPT.format(folder=shlex.quote(str(folder)))},
        labels={"owner": "control"},
    )
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=name, node=node)
    client = _client(conn_id)
    client.create_queued_resource(
        parent=parent,
        queued_resource_id=name,
        queued_resource=tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec])),
    )
    full = f"{parent}/queuedResources/{name}"
    states = tpu_v2.QueuedResourceState.State
    deadline = time.monotonic() + WAIT_SECONDS
    while (state := client.get_queued_resource(name=full).state.state) != states.ACTIVE:
        if state in (states.FAILED, states.SUSPENDED) or time.monotonic() > deadline:
            raise RuntimeError(f"{full} is {state.name}")
        time.sleep(POLL_SECONDS)
    return full


def _delete(conn_id: str, name: str | None) -> None:
    from google.api_core.exceptions import NotFound
    from google.cloud import tpu_v2

    if name is None:
        return
    client = _client(conn_id)
    try:
        client.delete_queued_resource(
            request=tpu_v2.DeleteQueuedResourceRequest(name=name, force=True)
        )
        while True:
            client.get_queued_resource(name=name)
            time.sleep(POLL_SECONDS)
    except NotFound:
        return
