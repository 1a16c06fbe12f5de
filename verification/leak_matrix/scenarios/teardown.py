"""Scenarios in which the teardown fails, hangs, is killed, or is overridden by a person."""

from __future__ import annotations

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.scenarios.runs import SHORT_LEASE, SHORT_LIFE
from verification.leak_matrix.stage import Stage

DELETE = "DeleteQueuedResource"
CALLER = "teardown"


def _fails_once(stage: Stage) -> None:
    stage.admin.fail_next(DELETE, code="UNAVAILABLE", zone=stage.zone)
    _work(stage)


def _reply_lost(stage: Stage) -> None:
    stage.admin.lose_reply(DELETE, zone=stage.zone)
    _work(stage)


def _work(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.finish()


def _denied_for_two_tries(stage: Stage) -> None:
    stage.deny(Layer.TEARDOWN)
    _work(stage)
    stage.until(lambda: _tries(stage) >= 3, "the third try of delete")
    stage.allow(Layer.TEARDOWN)


def _denied(stage: Stage) -> None:
    stage.deny(Layer.TEARDOWN)
    _work(stage)
    stage.until_task("delete", "failed", "up_for_retry")


def _tries(stage: Stage) -> int:
    task = stage.task("delete")
    return task.try_number if task else 0


def _stuck(stage: Stage) -> None:
    stage.admin.stick_deleting(stage.zone, seconds=12.0)
    _work(stage)
    stage.until_node("DELETING")


def _killed(stage: Stage) -> None:
    stage.admin.stick_deleting(stage.zone, seconds=15.0)
    _work(stage)
    stage.until_node("DELETING")
    stage.kill_task("delete")


def _marked_failed(stage: Stage) -> None:
    stage.deny(Layer.TEARDOWN)
    _work(stage)
    stage.until_task("delete", "running", "up_for_retry")
    stage.mark("delete", "failed")


def _marked_success_beforehand(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.mark("delete", "success")
    stage.finish()


def _service_away(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.admin.burst("*", seconds=15.0, share=0.8, seed=3, zone=stage.zone)
    stage.finish()


SCENARIOS = (
    Scenario(
        id="delete-fails-once",
        title="the first deletion call fails",
        expected=Layer.TEARDOWN,
        disturb=_fails_once,
        ends="success",
        control=True,
    ),
    Scenario(
        id="delete-reply-lost",
        title="the reply to the deletion call is lost",
        expected=Layer.TEARDOWN,
        disturb=_reply_lost,
        ends="success",
    ),
    Scenario(
        id="delete-fails-twice",
        title="two tries of the delete task fail",
        expected=Layer.TEARDOWN,
        disturb=_denied_for_two_tries,
        ends="success",
        bound=120,
    ),
    Scenario(
        id="delete-always-fails-vm",
        title="every try of the delete task fails",
        expected=Layer.VM,
        also_on=frozenset({Layer.TEARDOWN}),
        disturb=_denied,
        # The next try finds nothing left, and the run goes well.
        ends="success",
        config=SHORT_LEASE,
        bound=200,
    ),
    Scenario(
        id="delete-always-fails-reaper",
        title="every try of the delete task fails; the TPU VM cannot delete anything",
        expected=Layer.REAPER,
        also_on=frozenset({Layer.TEARDOWN}),
        disturb=_denied,
        ends="success",
        config=SHORT_LIFE,
        bound=200,
    ),
    Scenario(
        id="delete-stuck",
        title="the deletion stays in progress for a while",
        expected=Layer.TEARDOWN,
        disturb=_stuck,
        ends="success",
    ),
    Scenario(
        id="delete-killed",
        title="the delete task's process is killed while the deletion goes on",
        expected=Layer.TEARDOWN,
        disturb=_killed,
        ends="success",
        bound=200,
    ),
    Scenario(
        id="delete-marked-failed",
        title="delete marked failed before it could delete anything",
        expected=Layer.VM,
        also_on=frozenset({Layer.TEARDOWN}),
        disturb=_marked_failed,
        config=SHORT_LEASE,
    ),
    Scenario(
        id="delete-marked-success",
        title="delete marked success while the job runs: it never runs",
        expected=Layer.VM,
        also_on=frozenset({Layer.TEARDOWN}),
        disturb=_marked_success_beforehand,
        ends="success",
        config=SHORT_LEASE,
        control=True,
    ),
    Scenario(
        id="service-unavailable",
        title="most calls fail while the run ends",
        expected=Layer.TEARDOWN,
        disturb=_service_away,
        ends="success",
        bound=120,
    ),
)
