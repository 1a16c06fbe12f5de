"""Writes a run whose tasks are all deferred into Airflow's database, for a real triggerer.

``python -m verification.benchmarks.triggers.deferred_tasks WIRES.json``, where AIRFLOW_HOME has a
database.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pendulum
from airflow.dag_processing.collection import update_dag_parsing_results_in_db
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select

from triggers.tpu import TpuJobTrigger

DAG_ID = "bench_triggers"
BUNDLE = "bench"


def main() -> int:
    """Write the run."""
    wires: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
    now = pendulum.now("UTC")
    with DAG(DAG_ID, schedule=None, start_date=now) as dag:
        for number in range(len(wires)):
            EmptyOperator(task_id=f"wait_{number}")
    with create_session() as session:
        session.merge(DagBundleModel(name=BUNDLE))
        session.flush()
        update_dag_parsing_results_in_db(
            BUNDLE,
            None,
            [LazyDeserializedDAG.from_dag(dag)],
            import_errors={},
            parse_duration=None,
            warnings=set(),
            session=session,
        )
        session.commit()
        stored = SerializedDagModel.get_dag(DAG_ID, session=session)
        if stored is None:
            raise RuntimeError(f"Airflow has not taken over the DAG {DAG_ID}; see its log above.")
        stored.create_dagrun(
            run_id="bench",
            run_after=now,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.CLI,
            state=DagRunState.RUNNING,
            session=session,
        )
        tasks = session.scalars(select(TaskInstance).where(TaskInstance.dag_id == DAG_ID)).all()
        for task, wire in zip(tasks, wires, strict=True):
            trigger = Trigger.from_object(TpuJobTrigger(**wire))
            session.add(trigger)
            session.flush()
            task.state, task.trigger_id = TaskInstanceState.DEFERRED, trigger.id
            task.next_method, task.next_kwargs = "job_ended", {}
    return 0


if __name__ == "__main__":
    sys.exit(main())
