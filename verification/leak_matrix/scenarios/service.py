"""Scenarios in which the TPU service goes away for a while, with or without its VMs."""

from __future__ import annotations

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.stage import Stage

BOTH = frozenset({Layer.ON_KILL, Layer.TEARDOWN})


def _working(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    stage.finish()


def _working_again(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    stage.work_again()
    stage.until_works()
    stage.finish()


def _marked_failed(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    stage.mark("run", "failed")


SCENARIOS = (
    Scenario(
        id="service-killed-working",
        title="the service is killed and comes back while the job runs",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_working,
        ends="success",
        accident="emulator-killed",
        bound=180,
    ),
    Scenario(
        id="service-killed-marked-failed",
        title="run marked failed right after the service was killed",
        expected=Layer.TEARDOWN,
        disturb=_marked_failed,
        accident="emulator-killed",
        bound=180,
    ),
    Scenario(
        id="service-restarted-working",
        title="the service is restarted and all VMs with it while the job runs",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_working_again,
        ends="success",
        accident="emulator-restarted",
        bound=180,
    ),
)
