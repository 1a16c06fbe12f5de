"""Builds the DAGs of all scenarios. A DAG file of the matrix is two lines that call this."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, get_current_context, get_parsing_context, task, task_group

from operators.tpu import TpuDeleteOperator, TpuReaperOperator, TpuReserveOperator
from pipeline_config.settings import Settings, load_settings
from verification.leak_matrix.catalogue import SCENARIOS
from verification.leak_matrix.dags.control import control_dag
from verification.leak_matrix.dags.operators import (
    MatrixCreateOperator,
    MatrixPlanOperator,
    MatrixReserveOperator,
    MatrixRunOperator,
)
from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import GROUP, Scenario, Subject, run_folder, run_uri

WITHOUT = "LEAK_MATRIX_WITHOUT"
"""Environment variable: the layer that all DAGs are built without."""
CODE = "LEAK_MATRIX_CODE"
"""Environment variable: folder of the code for the TPU VMs."""
WANTED = "LEAK_MATRIX_SCENARIOS"
"""Environment variable: comma-separated ids of the scenarios to build DAGs for."""
REAPER_SECONDS = 15
QUEUE_SECONDS, PATIENT_QUEUE_SECONDS = 60, 900


def dags(only: str | None = None) -> dict[str, DAG]:
    """Return the DAGs by id; while a task is started, only its own DAG.

    :param only: id of the single scenario whose DAGs are wanted; None: all scenarios without their
        own DAG file.
    """
    wanted = get_parsing_context().dag_id
    there = set(os.environ[WANTED].split(","))
    return {
        dag_id: make()
        for scenario in SCENARIOS
        if scenario.id in there
        if (scenario.id == only if only else not scenario.shape.own_file)
        for dag_id, make in _makers(scenario)
        if wanted in (None, dag_id)
    }


def failing_task(store_uri: str) -> Any:
    """Return an additional task that fails once the run's file ``fail`` exists."""

    @task
    def beside() -> None:
        context = get_current_context()
        folder = run_folder(store_uri, context["dag"].dag_id, context["run_id"])
        while not (folder / "fail").exists():
            time.sleep(0.5)
        raise RuntimeError("told to fail")

    return beside()


def _makers(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    settings = load_settings()
    without = os.environ.get(WITHOUT)
    layers = scenario.layers(Layer(without) if without else None)
    yield scenario.dag_id, lambda: _matrix_dag(scenario, layers, settings)
    if Layer.REAPER in layers:
        yield scenario.reaper_dag_id, lambda: _reaper_dag(scenario, settings)
    if scenario.control:
        store, connection = settings.store_uri, settings.gcp_conn_id
        yield scenario.control_dag_id, lambda: control_dag(scenario, store, connection)


def _settings(scenario: Scenario, layers: frozenset[Layer]) -> dict[str, Any]:
    """Return the run's settings; without the layer ``queue``, the queue's deadline is long."""
    seconds = QUEUE_SECONDS if Layer.QUEUE in layers else PATIENT_QUEUE_SECONDS
    return {"tpu.queue_timeout_seconds": seconds, **scenario.config}


def _matrix_dag(scenario: Scenario, layers: frozenset[Layer], settings: Settings) -> DAG:
    shape = scenario.shape
    store = settings.store_uri
    with DAG(
        dag_id=scenario.dag_id,
        schedule="@daily" if shape.daily else None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        end_date=pendulum.datetime(2026, 1, 10, tz="UTC") if shape.daily else None,
        catchup=False,
        fail_fast=shape.fail_fast,
        dagrun_timeout=timedelta(seconds=shape.dagrun_timeout) if shape.dagrun_timeout else None,
        user_defined_macros={"run_uri_of": lambda dag_id, run_id: run_uri(store, dag_id, run_id)},
        default_args={"retries": shape.retries, "retry_delay": timedelta(seconds=2)},
    ) as dag:
        own = "{{ run_uri_of(dag.dag_id, run_id) }}"
        place = {"store_uri": store, "gcp_conn_id": settings.gcp_conn_id}
        wanted = _settings(scenario, layers)
        if scenario.subject is Subject.FINETUNING:
            plan = MatrixPlanOperator(
                task_id="plan",
                store_uri=store,
                settings=wanted,
                tpus=scenario.tpus,
                job=shape.job,
            )

            @task_group(group_id=GROUP)
            def rent_tpu(arguments: list[str]) -> MatrixRunOperator:
                reserve = TpuReserveOperator(task_id="reserve", **_code(scenario), **place)
                return _use_tpu(scenario, layers, reserve, arguments, place)

            rent_tpu.expand_kwargs(plan.output) >> EmptyOperator(task_id="after")
        else:
            reserve = MatrixReserveOperator(
                task_id="reserve", settings=wanted, **_code(scenario), **place
            )
            arguments = ["--folder", f"{own}/matrix", *shape.job]
            run = _use_tpu(scenario, layers, reserve, arguments, place)
            run >> EmptyOperator(task_id="after")
        if shape.fail_fast:
            failing_task(store)
    return dag


def _code(scenario: Scenario) -> dict[str, Any]:
    return {"tpu_owner": scenario.owner, "code_root": os.environ.get(CODE)}


def _use_tpu(
    scenario: Scenario,
    layers: frozenset[Layer],
    reserve: TpuReserveOperator,
    arguments: Any,
    tpu: dict[str, Any],
) -> MatrixRunOperator:
    """Wire the tasks after a reservation as the project's DAGs do; return the run task."""
    shape = scenario.shape
    changed: dict[str, Any] = {
        "is_deaf": Layer.ON_KILL not in layers,
        "defer_timeout": shape.defer_timeout,
    }
    create = MatrixCreateOperator(task_id="create", raises=shape.create_raises, **changed, **tpu)
    timeout = shape.run_execution_timeout
    run = MatrixRunOperator(
        task_id="run",
        job_id="010-work",
        entry_point="training.work",
        arguments=arguments,
        execution_timeout=timedelta(seconds=timeout) if timeout else None,
        **changed,
        **tpu,
    )
    reserve >> create >> run
    if Layer.TEARDOWN in layers:
        delete = TpuDeleteOperator(task_id="delete", **tpu)
        run >> delete
        delete.as_teardown(setups=[reserve, create], on_failure_fail_dagrun=True)
    return run


def _reaper_dag(scenario: Scenario, settings: Settings) -> DAG:
    with DAG(
        dag_id=scenario.reaper_dag_id,
        schedule=timedelta(seconds=REAPER_SECONDS),
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=True,
    ) as dag:
        TpuReaperOperator(
            task_id="reap",
            store_uri=settings.store_uri,
            gcp_conn_id=settings.gcp_conn_id,
            tpu_owner=scenario.owner,
        )
    return dag
