"""Scenarios in which no TPU can be had: stockouts, quota, permissions, the queue's own deadline."""

from __future__ import annotations

from collections.abc import Callable

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import DagShape, Scenario
from verification.leak_matrix.scenarios.creating import one_tpu
from verification.leak_matrix.scenarios.runs import SHORT_LIFE
from verification.leak_matrix.stage import Stage

WITH_TEARDOWN = frozenset({Layer.TEARDOWN})


def _first_zone_has_none(shape: str) -> Callable[[Stage], None]:
    def disturb(stage: Stage) -> None:
        stage.admin.stockout(stage.zones[0], shape=shape)
        stage.start()
        stage.until_works()
        stage.finish()

    return disturb


def _no_zone_has_any(stage: Stage) -> None:
    for zone in stage.zones:
        stage.admin.stockout(zone, shape="state", count=20)
    stage.start()
    stage.until_queued("FAILED")


def _no_quota(stage: Stage) -> None:
    stage.admin.quota(stage.zone, "v5litepod", 0)
    stage.start()
    stage.until_asked()


def _quota_in_use(stage: Stage) -> None:
    # The bystander in the zone uses the quota up.
    stage.admin.quota(stage.zone, "v5litepod", 1)
    stage.start()
    stage.until_call("CreateQueuedResource", count=2)
    stage.admin.quota(stage.zone, "v5litepod", None)
    stage.until_works()
    stage.finish()


def _quota_lags(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.admin.quota(stage.zone, "v5litepod", 2, lag=8.0)
    stage.admin.preempt(stage.until_node()["name"])
    stage.until_call("CreateQueuedResource", count=3)
    stage.work_again()
    stage.until_works()
    stage.finish()


def _not_allowed(stage: Stage) -> None:
    stage.admin.deny("CreateQueuedResource", stage.zone)
    stage.start()
    stage.until_asked()


def _waits_in_vain(stage: Stage) -> None:
    stage.admin.stockout(stage.zone, shape="wait")
    stage.start()
    stage.until_queued("WAITING_FOR_RESOURCES")
    stage.until_queue_gave_up()


def _in_second_zone(stage: Stage) -> list[str]:
    calls = stage.cloud.calls(stage.zones[1:], ("CreateQueuedResource",), 0)
    return [] if calls else [f"nothing was ever asked for in {stage.zones[1]}"]


SCENARIOS = (
    *(
        Scenario(
            id=f"stockout-{shape}-next-zone",
            title=f"the first zone has no TPU ({shape}); the teardown finds the second one's",
            expected=Layer.TEARDOWN,
            disturb=_first_zone_has_none(shape),
            ends="success",
            zones=2,
            check=_in_second_zone,
        )
        for shape in ("sync", "lro", "state")
    ),
    Scenario(
        id="stockout-everywhere",
        title="no zone has a TPU until the run's time is over; failed requests still take names",
        expected=Layer.TASK,
        disturb=_no_zone_has_any,
        config=SHORT_LIFE,
        bound=200,
        zones=2,
        control=True,
    ),
    Scenario(
        id="no-quota",
        title="the project has no quota",
        expected=Layer.NOBODY,
        also_on=WITH_TEARDOWN,
        disturb=_no_quota,
    ),
    Scenario(
        id="quota-in-use",
        title="a neighbour has all of the quota, then gives back",
        expected=Layer.TEARDOWN,
        disturb=_quota_in_use,
        ends="success",
    ),
    Scenario(
        id="quota-lags",
        title="the TPU is preempted, and its quota is freed long after its name",
        expected=Layer.TEARDOWN,
        disturb=_quota_lags,
        ends="success",
        shape=DagShape(retries=10),
    ),
    Scenario(
        id="permission-denied",
        title="the account may not create TPUs",
        expected=Layer.NOBODY,
        also_on=WITH_TEARDOWN,
        disturb=_not_allowed,
    ),
    Scenario(
        id="queue-deadline",
        title="no capacity until the request's own deadline; its name is freed",
        expected=Layer.QUEUE,
        disturb=_waits_in_vain,
        shape=DagShape(retries=0),
        check=one_tpu,
    ),
)
