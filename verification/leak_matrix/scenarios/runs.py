"""Scenarios of runs themselves: concurrent runs, backfills, timeouts, failures of the work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from local.stack.airflow_api import BackfillRequest
from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import DagShape, Scenario
from verification.leak_matrix.scenarios.creating import one_tpu, two_tpus
from verification.leak_matrix.stage import Stage

BOTH = frozenset({Layer.ON_KILL, Layer.TEARDOWN})
STALLED = DagShape(job=("--stall",), dagrun_timeout=60.0)
SHORT_LEASE = {"tpu.lease_timeout_seconds": 30.0}
"""Longer than a busy Airflow may take between two tasks of a run, when nothing renews the lease."""
SHORT_LIFE = {
    "budget.max_hours": 0.025,
    "tpu.queue_timeout_seconds": 60,
    "tpu.boot_timeout_seconds": 20,
}
"""A reservation of ninety seconds."""


def works_and_finishes(stage: Stage) -> None:
    """Let the run succeed."""
    stage.start()
    stage.until_works()
    stage.finish()


def _beside_fails(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.fail_beside()


def _two_at_once(stage: Stage) -> None:
    first, second = stage.start(), stage.start()
    stage.until_works(first)
    stage.until_works(second)
    stage.mark("run", "failed", run_id=first)
    stage.until_ended(first)
    stage.pause_somewhere()
    stage.finish(second)


def _backfill_cancelled(stage: Stage) -> None:
    request = BackfillRequest(
        dag_id=stage.dag_id,
        first=datetime(2026, 1, 2, tzinfo=UTC),
        last=datetime(2026, 1, 4, tzinfo=UTC),
        conf={"zones": list(stage.zones)},
    )
    backfill = stage.backfill(request)
    stage.until_works()
    stage.api.cancel_backfill(backfill)
    stage.mark_run("failed")


def _finished_then_cleared(stage: Stage) -> None:
    works_and_finishes(stage)
    stage.until_ended()
    stage.until_nothing_left()
    stage.clear_task("run")
    stage.until(lambda: not stage.api.run(stage.dag_id, stage.run_id).finished, "the run again")


def _finished_then_cleared_from_create(stage: Stage) -> None:
    works_and_finishes(stage)
    stage.until_ended()
    stage.until_nothing_left()
    stage.clear_task("create", "run")
    stage.until(lambda: not stage.api.run(stage.dag_id, stage.run_id).finished, "the run again")


def _until_timed_out(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.until_ended()


def _times_out_creating(stage: Stage) -> None:
    stage.admin.delay_next(
        "CreateQueuedResource", seconds=55.0, commit_late=True, zone=stage.zone, count=9
    )
    stage.start()
    stage.until_asked()
    stage.until_ended()
    stage.until_queued()


def _times_out_by_itself(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.until_task("run", "failed", "up_for_retry")


def _outlives_its_timeout(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.until(_later(8.0), "eight seconds")
    stage.finish()


def _later(seconds: float) -> Callable[[], bool]:
    begun = datetime.now(UTC)
    return lambda: (datetime.now(UTC) - begun).total_seconds() > seconds


SCENARIOS = (
    Scenario(
        id="success",
        title="nothing goes wrong",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=works_and_finishes,
        ends="success",
        control=True,
        check=one_tpu,
    ),
    Scenario(
        id="job-fails",
        title="the job fails",
        expected=Layer.TEARDOWN,
        disturb=works_and_finishes,
        shape=DagShape(job=("--fail",)),
    ),
    Scenario(
        id="fail-fast",
        title="another task fails in a DAG with fail_fast; no teardown",
        expected=Layer.ON_KILL,
        disturb=_beside_fails,
        shape=DagShape(fail_fast=True),
    ),
    Scenario(
        id="fail-fast-deaf",
        title="another task fails in a DAG with fail_fast; the trigger hears nothing",
        expected=Layer.TEARDOWN,
        disturb=_beside_fails,
        shape=DagShape(fail_fast=True),
    ),
    Scenario(
        id="two-runs",
        title="two runs at once, one is marked failed: the other keeps its TPU",
        expected=Layer.TEARDOWN,
        also_on=BOTH,
        disturb=_two_at_once,
        ends="failed success",
        check=two_tpus,
    ),
    Scenario(
        id="backfill-cancelled",
        title="a backfill of three days is cancelled during the first, whose run is marked failed",
        expected=Layer.TEARDOWN,
        disturb=_backfill_cancelled,
        ends="failed|success failed",
        shape=DagShape(daily=True),
        control=True,
        check=one_tpu,
    ),
    Scenario(
        id="finished-then-cleared",
        title="of a finished run only `run` is cleared: a TPU is made again and given back",
        expected=Layer.TEARDOWN,
        disturb=_finished_then_cleared,
        ends="success",
        bound=120,
    ),
    Scenario(
        id="finished-then-cleared-create",
        title="of a finished run `create` and `run` are cleared",
        expected=Layer.TEARDOWN,
        disturb=_finished_then_cleared_from_create,
        ends="success",
        bound=120,
    ),
    Scenario(
        id="dagrun-timeout",
        title="a dagrun_timeout passes while the job runs: the teardown is skipped",
        expected=Layer.ON_KILL,
        also_on=BOTH,
        disturb=_until_timed_out,
        shape=DagShape(dagrun_timeout=60.0),
        control=True,
    ),
    Scenario(
        id="dagrun-timeout-deaf",
        title="a dagrun_timeout passes while a job hangs, and the trigger hears nothing",
        expected=Layer.VM,
        also_on=frozenset({Layer.TEARDOWN}),
        disturb=_until_timed_out,
        config=SHORT_LEASE,
        shape=STALLED,
    ),
    Scenario(
        id="dagrun-timeout-creating",
        title="a dagrun_timeout passes while the create call is in flight",
        expected=Layer.REAPER,
        also_on=BOTH,
        disturb=_times_out_creating,
        config=SHORT_LIFE,
        shape=DagShape(dagrun_timeout=35.0),
        bound=180,
    ),
    Scenario(
        id="defer-timeout",
        title="the deferral times out until the reservation is over; no teardown",
        expected=Layer.TASK,
        disturb=_times_out_by_itself,
        config=SHORT_LIFE,
        shape=DagShape(defer_timeout=15.0),
    ),
    Scenario(
        id="execution-timeout",
        title="an execution_timeout on the deferrable task, which Airflow does not enforce",
        expected=Layer.TEARDOWN,
        disturb=_outlives_its_timeout,
        ends="success",
        shape=DagShape(run_execution_timeout=60.0),
        check=one_tpu,
    ),
)
