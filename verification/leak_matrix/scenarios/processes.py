"""Scenarios in which Airflow's processes die: of one task, or of the whole installation."""

from __future__ import annotations

from collections.abc import Callable

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import DagShape, Scenario
from verification.leak_matrix.scenarios.creating import one_tpu
from verification.leak_matrix.stage import Stage

BOTH = frozenset({Layer.ON_KILL, Layer.TEARDOWN})


def _supervisor_killed(stage: Stage) -> None:
    stage.admin.delay_next("CreateQueuedResource", seconds=15.0, zone=stage.zone)
    stage.start()
    stage.until_queued()
    stage.kill_task("create", supervisor=True)


def _working(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    stage.finish()


def _queued(stage: Stage) -> None:
    stage.admin.slow_operation("CreateQueuedResource", seconds=20.0, zone=stage.zone)
    stage.start()
    stage.until_asked()
    stage.until_task("create", "deferred")
    stage.accident()
    stage.until_works()
    stage.finish()


def _creating(stage: Stage) -> None:
    stage.admin.delay_next("CreateQueuedResource", seconds=20.0, zone=stage.zone)
    stage.start()
    stage.until_queued()
    stage.accident()
    stage.until_works()
    stage.finish()


def _deleting(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.admin.stick_deleting(stage.zone, seconds=15.0)
    stage.finish()
    stage.until_node("DELETING")
    stage.accident()


def _marked_failed(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    stage.mark("run", "failed")


def _accident(
    accident: str,
    phase: str,
    title: str,
    disturb: Callable[[Stage], None],
    *,
    ends: str = "success",
    bound: int = 180,
    check: Callable[[Stage], list[str]] | None = None,
) -> Scenario:
    return Scenario(
        id=f"{accident}-{phase}",
        title=title,
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=disturb,
        ends=ends,
        accident=accident,
        bound=bound,
        check=check,
    )


_KILLED = "is killed and started again"

SCENARIOS = (
    Scenario(
        id="supervisor-killed",
        title="the create task's supervisor is killed; its process lives on, orphaned",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_supervisor_killed,
        shape=DagShape(retries=0),
        bound=200,
    ),
    _accident("triggerer-killed", "queued", f"the triggerer {_KILLED}, in the queue", _queued),
    _accident(
        "triggerer-killed",
        "working",
        f"the triggerer {_KILLED} while the job runs",
        _working,
        check=one_tpu,
    ),
    _accident(
        "triggerer-away",
        "marked-failed",
        "run marked failed while there is no triggerer to hear it",
        _marked_failed,
        ends="failed",
    ),
    _accident(
        "scheduler-killed",
        "working",
        "the scheduler is killed with all its workers while the job runs",
        _working,
        check=one_tpu,
    ),
    _accident(
        "scheduler-killed",
        "creating",
        "the scheduler is killed with all its tasks while the create call has no answer",
        _creating,
        check=one_tpu,
    ),
    _accident(
        "scheduler-killed",
        "deleting",
        "the scheduler is killed with all its tasks while the delete task works",
        _deleting,
    ),
    _accident(
        "scheduler-alone",
        "working",
        "the scheduler is killed, its workers are not, while the job runs",
        _working,
        check=one_tpu,
    ),
    _accident(
        "scheduler-alone",
        "creating",
        "the scheduler is killed, its workers are not, while the create call has no answer",
        _creating,
        check=one_tpu,
    ),
    _accident(
        "scheduler-alone",
        "deleting",
        "the scheduler is killed, its workers are not, while the delete task works",
        _deleting,
    ),
    _accident(
        "scheduler-frozen",
        "working",
        "the scheduler is there and does nothing, nor do its workers, while the job runs",
        _working,
        # After 150 s it is taken for dead.
        bound=400,
        check=one_tpu,
    ),
    _accident(
        "api-server-killed",
        "working",
        f"the API server {_KILLED} while the job runs",
        _working,
        check=one_tpu,
    ),
    _accident(
        "postgres-restarted",
        "working",
        "PostgreSQL is restarted while the job runs",
        _working,
        check=one_tpu,
    ),
    _accident(
        "postgres-killed",
        "deleting",
        f"PostgreSQL {_KILLED} while the delete task works",
        _deleting,
    ),
)
