"""Scenarios in which the DAG is paused or deleted, or its file removed, while a run has a TPU."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from local.stack.airflow_api import AirflowApiError
from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import DagShape, Scenario
from verification.leak_matrix.scenarios.creating import one_tpu
from verification.leak_matrix.scenarios.runs import SHORT_LEASE, SHORT_LIFE
from verification.leak_matrix.stage import Stage, StageError

WITH_TEARDOWN = frozenset({Layer.TEARDOWN})


def _paused_for_a_while(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.api.pause(stage.dag_id)
    stage.finish()
    stage.pause_somewhere(8.0)
    stage.api.unpause(stage.dag_id)


def _paused(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.api.pause(stage.dag_id)
    stage.finish()


def _paused_for_good(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.api.pause(stage.dag_id)


def _deleted(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.api.delete_dag(stage.dag_id)
    stage.finish()


def _file_removed(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    (stage.stack.paths.root / "dags" / f"{stage.dag_id}.py").unlink()
    stage.until(lambda: _is_stale(stage), "the DAG to be stale")
    stage.finish()


def _is_stale(stage: Stage) -> bool:
    return bool(stage.api.request("GET", f"/dags/{stage.dag_id}")["is_stale"])


def _deletion_refused(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    path = f"/dags/{stage.dag_id}/dagRuns/{quote(stage.run_id, safe='')}"
    try:
        stage.api.request("DELETE", path)
    except AirflowApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
    else:
        raise StageError("Airflow deletes a run that has not ended")
    stage.finish()


SCENARIOS = (
    Scenario(
        id="dag-paused-a-while",
        title="the DAG is paused while the job ends, and unpaused later",
        expected=Layer.TEARDOWN,
        disturb=_paused_for_a_while,
        ends="success",
        control=True,
    ),
    Scenario(
        id="dag-paused-vm",
        title="the DAG is paused for good, the job ends",
        expected=Layer.VM,
        also_on=WITH_TEARDOWN,
        disturb=_paused,
        ends=None,
        config=SHORT_LEASE,
        control=True,
    ),
    Scenario(
        id="dag-paused-reaper",
        title="the DAG is paused for good, the job goes on",
        expected=Layer.REAPER,
        also_on=WITH_TEARDOWN,
        disturb=_paused_for_good,
        ends=None,
        config=SHORT_LIFE,
        bound=180,
    ),
    Scenario(
        id="dag-deleted-vm",
        title="the DAG is deleted with its runs while the job runs",
        expected=Layer.VM,
        also_on=WITH_TEARDOWN,
        disturb=_deleted,
        ends=None,
        config=SHORT_LEASE,
    ),
    Scenario(
        id="dag-deleted-reaper",
        title="the DAG is deleted with its runs; the TPU VM cannot delete anything",
        expected=Layer.REAPER,
        also_on=WITH_TEARDOWN,
        disturb=_deleted,
        ends=None,
        config=SHORT_LIFE,
        bound=180,
    ),
    Scenario(
        id="dag-file-removed",
        title="the DAG's file is removed while the job runs",
        expected=Layer.VM,
        also_on=WITH_TEARDOWN,
        disturb=_file_removed,
        ends=None,
        config=SHORT_LEASE,
        shape=DagShape(own_file=True),
        bound=120,
    ),
    Scenario(
        id="run-deletion-refused",
        title="somebody tries to delete the run while it has a TPU; Airflow refuses",
        expected=Layer.TEARDOWN,
        disturb=_deletion_refused,
        ends="success",
        check=one_tpu,
    ),
)
