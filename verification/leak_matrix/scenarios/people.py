"""Scenarios in which a person marks or clears tasks, or marks the whole run, in each phase."""

from __future__ import annotations

from collections.abc import Callable

from verification.leak_matrix.layers import Layer, user_agent
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.scenarios.creating import two_tpus
from verification.leak_matrix.stage import Stage

BOTH = frozenset({Layer.ON_KILL, Layer.TEARDOWN})
EITHER = "failed|success"
"""If a person marks a run failed, the tasks that run afterwards decide its state."""


def _while_queued(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def disturb(stage: Stage) -> None:
        stage.admin.stockout(stage.zone, shape="wait")
        stage.start()
        stage.until_queued("WAITING_FOR_RESOURCES")
        stage.until_watched("create")
        act(stage)

    return disturb


def _while_slow(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """Act while the request waits, and let it be granted later.

    The next try takes this TPU or requests another one: the old trigger may be canceled before or
    after the grant.
    """

    def disturb(stage: Stage) -> None:
        stage.admin.slow_operation("CreateQueuedResource", seconds=20.0, zone=stage.zone)
        stage.start()
        stage.until_asked()
        stage.until_watched("create")
        act(stage)

    return disturb


def _while_working(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def disturb(stage: Stage) -> None:
        stage.start()
        stage.until_works()
        stage.pause_somewhere()
        act(stage)

    return disturb


def _while_run_begins(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """Act while the run task's own process works: its read of the TPU is slow."""

    def disturb(stage: Stage) -> None:
        stage.start()
        stage.until_task("create", "success")
        stage.admin.delay_next(
            "GetQueuedResource",
            seconds=15.0,
            zone=stage.zone,
            count=20,
            caller=user_agent(Layer.TASK),
        )
        # Not earlier: a process that has not reached the TPU yet has nothing to release.
        stage.until(lambda: stage.is_in_flight("GetQueuedResource"), "the task's look")
        act(stage)

    return disturb


def _while_creating(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def disturb(stage: Stage) -> None:
        stage.admin.delay_next("CreateQueuedResource", seconds=6.0, zone=stage.zone)
        stage.start()
        stage.until_queued()
        act(stage)

    return disturb


def _while_deleting(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def disturb(stage: Stage) -> None:
        stage.start()
        stage.until_works()
        stage.finish()
        stage.until_task("delete", "running")
        act(stage)

    return disturb


def _mark(task_id: str, state: str) -> Callable[[Stage], None]:
    return lambda stage: stage.mark(task_id, state)


def _mark_run(stage: Stage) -> None:
    stage.mark_run("failed")


def _clear_and_finish(task_id: str) -> Callable[[Stage], None]:
    def act(stage: Stage) -> None:
        stage.clear_task(task_id)
        if task_id == "create":
            stage.until(lambda: _tries(stage, task_id) > 1, "the second try")
        stage.until_works()
        stage.pause_somewhere(4.0)
        stage.finish()

    return act


def _tries(stage: Stage, task_id: str) -> int:
    task = stage.task(task_id)
    return task.try_number if task else 0


def _finish(stage: Stage) -> None:
    stage.until_works()
    stage.finish()


def _success_then_finish(task_id: str) -> Callable[[Stage], None]:
    def act(stage: Stage) -> None:
        stage.mark(task_id, "success")
        _finish(stage)

    return act


SCENARIOS = (
    Scenario(
        id="run-marked-failed",
        title="run marked failed while it waits deferred; no teardown",
        expected=Layer.ON_KILL,
        disturb=_while_working(_mark("run", "failed")),
        fast=True,
    ),
    Scenario(
        id="run-marked-failed-deaf",
        title="run marked failed while it waits deferred; its trigger hears nothing",
        expected=Layer.TEARDOWN,
        disturb=_while_working(_mark("run", "failed")),
        control=True,
    ),
    Scenario(
        id="run-marked-success",
        title="run marked success while it waits deferred; no teardown",
        expected=Layer.ON_KILL,
        disturb=_while_working(_mark("run", "success")),
        ends="success",
    ),
    Scenario(
        id="run-marked-success-deaf",
        title="run marked success while it waits deferred; its trigger hears nothing",
        expected=Layer.TEARDOWN,
        disturb=_while_working(_mark("run", "success")),
        ends="success",
        control=True,
    ),
    Scenario(
        id="run-cleared",
        title="run cleared while it waits deferred: the old trigger must leave the TPU alone",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_while_working(_clear_and_finish("run")),
        ends="success",
        # Airflow clears the setups with it: reserve opens the next generation.
        check=two_tpus,
        fast=True,
    ),
    Scenario(
        id="run-process-marked-failed",
        title="run marked failed while its process works; no teardown",
        expected=Layer.ON_KILL,
        disturb=_while_run_begins(_mark("run", "failed")),
    ),
    Scenario(
        id="create-marked-failed-queued",
        title="create marked failed while it waits in the queue; no teardown",
        expected=Layer.ON_KILL,
        disturb=_while_queued(_mark("create", "failed")),
    ),
    Scenario(
        id="create-marked-failed-queued-deaf",
        title="create marked failed while it waits in the queue; its trigger hears nothing",
        expected=Layer.TEARDOWN,
        disturb=_while_queued(_mark("create", "failed")),
        control=True,
    ),
    Scenario(
        id="create-marked-success-queued",
        title="create marked success while it waits; run goes on with its TPU or asks for another",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_while_slow(_success_then_finish("create")),
        ends="success",
    ),
    Scenario(
        id="create-cleared-queued",
        title="create cleared while it waits; its next try goes on with it or asks for another",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_while_slow(_clear_and_finish("create")),
        ends="success",
    ),
    Scenario(
        id="create-process-marked-success",
        title="create marked success while its call has no answer",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_while_creating(_success_then_finish("create")),
        ends="success",
    ),
    Scenario(
        id="whole-run-failed-creating",
        title="the whole run marked failed while the create call has no answer",
        expected=Layer.TEARDOWN,
        ends=EITHER,
        disturb=_while_creating(_mark_run),
        control=True,
    ),
    Scenario(
        id="whole-run-failed-queued",
        title="the whole run marked failed while it waits in the queue; no teardown",
        expected=Layer.ON_KILL,
        disturb=_while_queued(_mark_run),
    ),
    Scenario(
        id="whole-run-failed-queued-deaf",
        title="the whole run marked failed while it waits in the queue; its trigger hears nothing",
        expected=Layer.TEARDOWN,
        ends=EITHER,
        disturb=_while_queued(_mark_run),
        control=True,
    ),
    Scenario(
        id="whole-run-failed-working",
        title="the whole run marked failed while the job runs; no teardown",
        expected=Layer.ON_KILL,
        disturb=_while_working(_mark_run),
    ),
    Scenario(
        id="whole-run-failed-working-deaf",
        title="the whole run marked failed while the job runs; its trigger hears nothing",
        expected=Layer.TEARDOWN,
        ends=EITHER,
        disturb=_while_working(_mark_run),
        control=True,
    ),
    Scenario(
        id="whole-run-failed-deleting",
        title="the whole run marked failed while the delete task works",
        expected=Layer.TEARDOWN,
        ends=EITHER,
        disturb=_while_deleting(_mark_run),
        control=True,
    ),
)
