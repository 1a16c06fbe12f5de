"""Executes operators and triggers as Airflow's worker and triggerer do, in processes to kill."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from airflow.triggers.base import BaseTrigger

# Imported here so that every process forked from this module's has it already.
from hooks import tpu as hooks  # noqa: F401 - loaded for the forked processes
from operators.tpu import (
    TpuCreateOperator,
    TpuDeleteOperator,
    TpuReserveOperator,
    TpuRunOperator,
)
from tpu_lifecycle.service import cloud_tpu  # noqa: F401 - the same
from triggers import tpu as triggers  # noqa: F401 - the same
from verification.chaos.calls import CONN_ID, RETRY_SECONDS, TaskCall, TriggerCall, Wire


def make_operator(task: str, arguments: dict[str, Any]) -> Any:
    """Return the operator of one of the group's tasks."""
    kinds = {"reserve": TpuReserveOperator, "create": TpuCreateOperator}
    kind = kinds.get(task, TpuDeleteOperator if task == "delete" else TpuRunOperator)
    pause = timedelta(seconds=RETRY_SECONDS)
    return kind(task_id=task, gcp_conn_id=CONN_ID, retry_delay=pause, **arguments)


def run_task(channel: Connection, call: TaskCall) -> None:
    """Execute a task and send its outcome; the body of a worker process."""
    _prepare(call.environment, call.log)
    operator = make_operator(call.task, call.operator)
    # As in Airflow: the handler calls on_kill, and the process continues until it is killed.
    signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    dag_id, run_id = call.dag_run
    context = {
        "dag_run": SimpleNamespace(dag_id=dag_id, run_id=run_id),
        "ti": SimpleNamespace(try_number=call.try_number, map_index=-1),
    }
    try:
        if call.resume is None:
            value = operator.execute(context)
        else:
            wire, event = call.resume
            value = operator.resume_execution(wire.method, {"event": event}, context)
    except TaskDeferred as deferred:
        channel.send({"state": "deferred", "wire": _to_wire(deferred)})
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the task's outcome
        channel.send(_failure(error))
    else:
        channel.send({"state": "success", "value": value})


def _failure(error: Exception) -> dict[str, Any]:
    print(f"{type(error).__name__}: {error}", flush=True)
    cause = error.__cause__ or error
    return {
        "state": "failed",
        "retryable": not isinstance(error, AirflowFailException),
        "class": type(error).__name__,
        "kind": str(getattr(error, "kind", "")),
        "cause": f"{type(cause).__module__}.{type(cause).__name__}",
        "message": str(error)[:1000],
    }


def _to_wire(deferred: TaskDeferred) -> Wire:
    path, arguments = deferred.trigger.serialize()
    return Wire(path, json.loads(json.dumps(arguments)), deferred.method_name)


def run_trigger(channel: Connection, call: TriggerCall) -> None:
    """Run a trigger to its event and send that; the body of a triggerer process.

    SIGUSR1 stands for a person who ends the task: the trigger is canceled and its ``on_kill``
    called. SIGUSR2 is the same, but ``on_kill`` is called twice.
    """
    _prepare(call.environment, call.log)
    module, _, name = call.wire.trigger.rpartition(".")
    trigger = getattr(importlib.import_module(module), name)(**call.wire.arguments)
    channel.send({"state": "event", "event": asyncio.run(_first_event(trigger))})


async def _first_event(trigger: BaseTrigger) -> dict[str, Any] | None:
    wait = asyncio.ensure_future(_run(trigger))
    kills: list[int] = []

    def end(times: int) -> None:
        kills.append(times)
        wait.cancel()

    for number, times in ((signal.SIGUSR1, 1), (signal.SIGUSR2, 2)):
        asyncio.get_running_loop().add_signal_handler(number, end, times)
    try:
        return await wait
    except asyncio.CancelledError:
        for _ in range(sum(kills)):
            await trigger.on_kill()
        return None


async def _run(trigger: BaseTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise RuntimeError("the trigger ended without an event")


def _prepare(environment: Mapping[str, str], log: str) -> None:
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
