"""Scenarios in which Airflow dies and does not come back."""

from __future__ import annotations

from verification.leak_matrix.layers import Layer, user_agent
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.scenarios.runs import SHORT_LEASE, SHORT_LIFE
from verification.leak_matrix.scenarios.vms import job_hangs
from verification.leak_matrix.stage import Stage

DEAD = "airflow-dead"
ABOVE = frozenset({Layer.ON_KILL, Layer.TEARDOWN})
LONGER_LIFE = SHORT_LIFE | {"budget.max_hours": 0.04}
"""Long enough for all scenarios that share the accident to be ready for it."""


def _working(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()


def _job_ends(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    stage.finish()


def _agent_dies(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    for process in stage.vm_processes("tpu_agent"):
        process.suspend()
    # Its job ends, and nothing reports that.
    stage.finish()


def _job_hangs(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.accident()
    job_hangs(stage)


def _no_job_yet(stage: Stage) -> None:
    stage.start()
    stage.until_task("create", "success")
    stage.admin.delay_next(
        "GetQueuedResource", seconds=20.0, zone=stage.zone, count=9, caller=user_agent(Layer.TASK)
    )
    stage.until_task("run", "running")
    stage.accident()


def _deleting(stage: Stage) -> None:
    stage.deny(Layer.TEARDOWN)
    stage.start()
    stage.until_works()
    stage.finish()
    stage.until_task("delete", "running", "up_for_retry")
    stage.until(stage.is_released, "the tombstone")
    stage.accident()


def _cron(stage: Stage) -> None:
    _working(stage)
    stage.start_cron()


def _cron_forsaken(stage: Stage) -> None:
    _job_ends(stage)
    stage.start_cron()


def _cron_queued(stage: Stage) -> None:
    stage.admin.stockout(stage.zone, shape="wait")
    stage.start()
    stage.until_queued("WAITING_FOR_RESOURCES")
    stage.accident()
    stage.start_cron()


SCENARIOS = (
    Scenario(
        id="airflow-dead-job-ends",
        title="Airflow is dead for good; the job ends",
        expected=Layer.VM,
        also_on=ABOVE,
        disturb=_job_ends,
        ends=None,
        config=SHORT_LEASE,
        accident=DEAD,
    ),
    Scenario(
        id="airflow-dead-job-hangs",
        title="Airflow is dead for good, and the job hangs as often as it may",
        expected=Layer.VM,
        also_on=ABOVE,
        disturb=_job_hangs,
        ends=None,
        config=SHORT_LEASE | {"hang.loop_floor_seconds": 3.0, "budget.max_hangs": 0},
        accident=DEAD,
    ),
    Scenario(
        id="airflow-dead-job-goes-on",
        title="Airflow is dead for good; the job makes progress until the TPU's time is over",
        expected=Layer.VM,
        also_on=ABOVE,
        disturb=_working,
        ends=None,
        config=LONGER_LIFE | SHORT_LEASE,
        accident=DEAD,
        bound=200,
    ),
    Scenario(
        id="airflow-dead-no-job",
        title="Airflow dies for good between READY and the job",
        expected=Layer.VM,
        also_on=ABOVE,
        disturb=_no_job_yet,
        ends=None,
        config=SHORT_LEASE,
        accident=DEAD,
    ),
    Scenario(
        id="airflow-dead-deleting",
        title="Airflow dies for good between the tombstone and the deletion",
        expected=Layer.VM,
        also_on=ABOVE,
        disturb=_deleting,
        ends=None,
        config=SHORT_LEASE,
        accident=DEAD,
    ),
    Scenario(
        id="airflow-dead-cron",
        title="Airflow is dead for good; the TPU VM cannot delete anything",
        expected=Layer.CRON,
        also_on=ABOVE,
        disturb=_cron,
        ends=None,
        config=LONGER_LIFE,
        accident=DEAD,
        bound=200,
    ),
    Scenario(
        id="airflow-dead-forsaken-cron",
        title="Airflow is dead for good, the job ends, and the TPU VM cannot delete anything",
        expected=Layer.CRON,
        also_on=ABOVE,
        disturb=_cron_forsaken,
        ends=None,
        config=SHORT_LEASE,
        accident=DEAD,
        bound=200,
    ),
    Scenario(
        id="airflow-dead-queued-cron",
        title="Airflow is dead for good; the request waits in the queue",
        expected=Layer.CRON,
        also_on=ABOVE,
        disturb=_cron_queued,
        ends=None,
        config=LONGER_LIFE,
        accident=DEAD,
        bound=200,
    ),
    Scenario(
        id="airflow-dead-agent-hangs",
        title="Airflow is dead for good, and the agent on the VM hangs",
        expected=Layer.VM,
        also_on=ABOVE,
        disturb=_agent_dies,
        ends=None,
        config=SHORT_LEASE,
        accident=DEAD,
    ),
)
