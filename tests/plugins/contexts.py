"""What Airflow tells a task about itself, as far as the operators ask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.model_registry.runs import FinishedRun


def context_of(dag_id: str, run_id: str, *, map_index: int = -1, **more: Any) -> Any:
    """Return the context of a task.

    :param more: further entries; ``left`` has XComs by task and key.
    """
    dag_run = SimpleNamespace(
        dag_id=dag_id, run_id=run_id, run_type="manual", triggering_user_name="ada"
    )
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(try_number=1, map_index=map_index, id="some-uuid")
    ti.xcom_push = lambda key, value: pushed.update({key: value})
    # What the listener of a run's state leaves is among what a test says was pulled.
    left = more.pop("left", {})
    ti.xcom_pull = lambda task_ids, key: left.get((task_ids, key))
    return {"dag_run": dag_run, "ti": ti, "task_instance": ti, "pushed": pushed} | more


def of_finished(run: FinishedRun, **more: Any) -> Any:
    """Return the context of a task of a finished run."""
    return context_of("dag", run.name, **more)
