"""Scenarios in which the create task fails, or its create call is lost, late, or repeated."""

from __future__ import annotations

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import DagShape, Scenario
from verification.leak_matrix.stage import Stage

CREATE = "CreateQueuedResource"
LATE_SECONDS = 20.0
"""Longer than Airflow takes to end the process of a task that was marked failed."""
ONCE = DagShape(retries=0)


def _refused(stage: Stage) -> None:
    stage.admin.fail_next(CREATE, code="INVALID_ARGUMENT", zone=stage.zone)
    stage.start()
    stage.until_asked()


def _raises_when_ready(stage: Stage) -> None:
    stage.start()
    stage.until_node()


def _reply_lost(stage: Stage) -> None:
    stage.admin.lose_reply(CREATE, zone=stage.zone)
    stage.start()
    if not stage.is_control:
        stage.until_works()
        stage.finish()


def _duplicated(stage: Stage) -> None:
    stage.admin.duplicate_next(CREATE, stage.zone)
    stage.start()
    if not stage.is_control:
        stage.until_works()
    stage.finish()


def _reply_lost_retry(stage: Stage) -> None:
    stage.admin.lose_reply(CREATE, zone=stage.zone, count=1 if stage.is_control else 6)
    stage.start()
    stage.until_works()
    stage.finish()


def _killed_in_call(stage: Stage) -> None:
    stage.admin.delay_next(CREATE, seconds=30.0, zone=stage.zone)
    stage.start()
    stage.until_queued()
    stage.pause_somewhere()
    stage.kill_task("create")


def _killed_and_retried(stage: Stage) -> None:
    _killed_in_call(stage)
    stage.until_works()
    stage.finish()


def _late_and_marked(stage: Stage) -> None:
    stage.admin.delay_next(CREATE, seconds=LATE_SECONDS, commit_late=True, zone=stage.zone)
    stage.start()
    stage.until_asked()
    stage.pause_somewhere()
    stage.mark("create", "failed")


def _late_and_killed(stage: Stage) -> None:
    stage.admin.delay_next(CREATE, seconds=LATE_SECONDS, commit_late=True, zone=stage.zone)
    stage.start()
    stage.until_asked()
    stage.pause_somewhere()
    stage.kill_task("create")


def _slow_and_marked(stage: Stage) -> None:
    stage.admin.delay_next(CREATE, seconds=LATE_SECONDS, zone=stage.zone)
    stage.start()
    stage.until_queued()
    stage.pause_somewhere()
    stage.mark("create", "failed")


def _operation_fails(stage: Stage) -> None:
    stage.admin.stockout(stage.zone, shape="lro", count=20)
    stage.start()
    stage.until_asked()


def two_tpus(stage: Stage) -> list[str]:
    """Return a problem unless two TPUs were made, or up to one more per try that Airflow lost."""
    return _made(stage, 2)


def one_tpu(stage: Stage) -> list[str]:
    """Return a problem unless one TPU was made, or up to one more per try that Airflow lost."""
    return _made(stage, 1)


def _made(stage: Stage, wanted: int) -> list[str]:
    names, lost = stage.creations(), stage.lost_tries()
    if wanted <= len(names) <= wanted + len(lost):
        return []
    # The tries and their requests: the run's folder is gone when this is read.
    history = "; ".join([*names, *stage.history(), *lost])
    counted = f"{len(names)} TPUs were made, not {wanted} (Airflow lost {len(lost)} tries)"
    return [f"{counted}: {history}"]


SCENARIOS = (
    Scenario(
        id="create-refused",
        title="the create call is refused before anything exists",
        expected=Layer.NOBODY,
        also_on=frozenset({Layer.TEARDOWN}),
        disturb=_refused,
        control=True,
    ),
    Scenario(
        id="create-fails-after-ready",
        title="the create task fails once its TPU is READY",
        expected=Layer.TEARDOWN,
        disturb=_raises_when_ready,
        shape=DagShape(create_raises=True),
        control=True,
        fast=True,
    ),
    Scenario(
        id="create-reply-lost",
        title="the reply to the create call is lost; the TPU is adopted and used",
        expected=Layer.TEARDOWN,
        disturb=_reply_lost,
        ends="success",
        control=True,
        check=one_tpu,
        fast=True,
    ),
    Scenario(
        id="create-duplicated",
        title="the service receives the create call twice",
        expected=Layer.TEARDOWN,
        disturb=_duplicated,
        ends="success",
        check=one_tpu,
    ),
    Scenario(
        id="create-replies-lost-retried",
        title="all replies of one try are lost; Airflow retries the create task",
        expected=Layer.TEARDOWN,
        disturb=_reply_lost_retry,
        ends="success",
        shape=DagShape(control_retries=1),
        bound=200,
        control=True,
    ),
    Scenario(
        id="create-killed-in-call",
        title="the create task's process is killed after the service has acted",
        expected=Layer.TEARDOWN,
        disturb=_killed_in_call,
        shape=ONCE,
        bound=200,
        control=True,
    ),
    Scenario(
        id="create-killed-in-call-retried",
        title="the same, and Airflow retries the task: the TPU is adopted and used",
        expected=Layer.TEARDOWN,
        disturb=_killed_and_retried,
        ends="success",
        check=one_tpu,
    ),
    Scenario(
        id="create-late-marked-failed",
        title="marked failed while the create call is in flight, which takes effect later",
        expected=Layer.TEARDOWN,
        disturb=_late_and_marked,
        bound=120,
        control=True,
    ),
    Scenario(
        id="create-late-killed",
        title="killed while the create call is in flight, which takes effect later",
        expected=Layer.TEARDOWN,
        disturb=_late_and_killed,
        shape=ONCE,
        bound=200,
        control=True,
    ),
    Scenario(
        id="create-slow-marked-failed",
        title="marked failed while the service has acted but not answered",
        expected=Layer.TEARDOWN,
        disturb=_slow_and_marked,
    ),
    Scenario(
        id="create-operation-fails",
        title="the create call is accepted, its operation fails; the failed request takes a name",
        expected=Layer.TASK,
        disturb=_operation_fails,
        shape=DagShape(retries=2),
        bound=150,
    ),
)
