"""Scenarios in which the service takes the TPU away, in each phase of its life."""

from __future__ import annotations

from collections.abc import Callable

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.stage import Stage


def _again(stage: Stage, take: Callable[[Stage], None]) -> None:
    """Take the TPU away while the job runs; the job on the next TPU may finish."""
    stage.start()
    stage.until_works()
    stage.pause_somewhere()
    _take_and_finish(stage, take)


def _take_and_finish(stage: Stage, take: Callable[[Stage], None]) -> None:
    node = stage.until_node()["name"]
    take(stage)
    if not stage.is_control:
        stage.until(
            lambda: any(n["name"] != node and n["state"] == "READY" for n in stage.nodes()),
            "another TPU",
        )
        stage.work_again()
        stage.until_works()
        stage.finish()


def _preempt(stage: Stage) -> None:
    stage.admin.preempt(stage.until_node()["name"])


def _vanish_node(stage: Stage) -> None:
    stage.admin.preempt(stage.until_node()["name"], node_state="GONE")


def _vanish(stage: Stage) -> None:
    stage.admin.vanish(stage.until_node()["name"])


def _maintain(stage: Stage) -> None:
    stage.admin.notice(stage.until_node()["name"], kind="maintenance", seconds=3.0)


def _preempted_queued(stage: Stage) -> None:
    stage.admin.stockout(stage.zone, shape="wait")
    stage.start()
    stage.until_queued("WAITING_FOR_RESOURCES")
    stage.until_task("create", "deferred")
    stage.cloud.clear(stage.zones)
    if not stage.is_control:
        stage.until_works()
        stage.finish()


def _preempted_provisioning(stage: Stage) -> None:
    stage.start()
    stage.admin.preempt(stage.until_any_node()["name"])
    if not stage.is_control:
        stage.until_works()
    stage.finish()


def _preempted_ready(stage: Stage) -> None:
    stage.start()
    stage.until_node()
    _preempt(stage)
    if not stage.is_control:
        stage.until_call("CreateQueuedResource", count=2)
        stage.until_works()
    stage.finish()


def _preempted_without_budget(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    _preempt(stage)


def _vanishes_while_deleting(stage: Stage) -> None:
    stage.admin.stick_deleting(stage.zone, seconds=30.0)
    stage.start()
    stage.until_works()
    stage.finish()
    node = stage.until_node("DELETING")["name"]
    stage.admin.vanish(node)


def _maintained(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.work_again()
    _maintain(stage)
    stage.until_works()
    stage.finish()


SCENARIOS: tuple[Scenario[Stage], ...] = (
    Scenario(
        id="request-vanishes-queued",
        title="somebody deletes the request while it waits in the queue",
        expected=Layer.TEARDOWN,
        disturb=_preempted_queued,
        ends="success",
        bound=150,
    ),
    Scenario(
        id="preempted-provisioning",
        title="preempted while its VM boots",
        expected=Layer.TEARDOWN,
        disturb=_preempted_provisioning,
        ends="success",
        control=True,
    ),
    Scenario(
        id="preempted-ready",
        title="preempted when READY, before the job runs",
        expected=Layer.TEARDOWN,
        disturb=_preempted_ready,
        ends="success",
    ),
    Scenario(
        id="preempted-working",
        title="preempted while the job runs; it goes on elsewhere",
        expected=Layer.TEARDOWN,
        disturb=lambda stage: _again(stage, _preempt),
        ends="success",
        control=True,
    ),
    Scenario(
        id="node-vanishes-working",
        title="the node vanishes while the job runs, its request stays SUSPENDED",
        expected=Layer.TEARDOWN,
        disturb=lambda stage: _again(stage, _vanish_node),
        ends="success",
        control=True,
    ),
    Scenario(
        id="all-vanishes-working",
        title="node and request vanish at once while the job runs",
        expected=Layer.TEARDOWN,
        disturb=lambda stage: _again(stage, _vanish),
        ends="success",
    ),
    Scenario(
        id="preempted-without-budget",
        title="preempted, and no further TPU is allowed; no teardown",
        expected=Layer.TASK,
        disturb=_preempted_without_budget,
        config={"budget.max_preemptions": 0},
        control=True,
    ),
    Scenario(
        id="vanishes-deleting",
        title="the TPU vanishes while its deletion is stuck",
        expected=Layer.TEARDOWN,
        disturb=_vanishes_while_deleting,
        ends="success",
    ),
    Scenario(
        id="maintenance",
        title="host maintenance reboots the VM; the job runs again on it",
        expected=Layer.TEARDOWN,
        disturb=_maintained,
        ends="success",
    ),
)
