"""Scenarios in which a TPU VM does not boot, hangs, reboots, loses its agent, or its job hangs."""

from __future__ import annotations

import contextlib

import psutil

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.scenarios.creating import one_tpu
from verification.leak_matrix.stage import Stage

QUICK_TO_DOUBT = {
    "tpu.boot_timeout_seconds": 20,
    "tpu.heartbeat_timeout_seconds": 10.0,
}
BOOT = "no-boot"
QUICK_TO_CALL_IT_HUNG = {"hang.loop_floor_seconds": 3.0, "budget.max_hangs": 1}


def _first_never_boots(stage: Stage) -> None:
    stage.admin.arm_worker(stage.zone, 0, fault=BOOT)
    stage.start()
    stage.until_works()
    stage.finish()


def _none_boots(stage: Stage) -> None:
    stage.admin.arm_worker(stage.zone, 0, fault=BOOT, count=4)
    stage.start()
    stage.until_call("CreateQueuedResource", count=2)


def _silent(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    first = stage.until_node()["name"]
    for pid in stage.pids():
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).suspend()
    stage.until(
        lambda: any(n["name"] != first and n["state"] == "READY" for n in stage.nodes()),
        "another TPU",
    )
    stage.work_again()
    stage.until_works()
    stage.finish()


def _agent_killed(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    for process in stage.vm_processes("tpu_agent"):
        process.kill()
    stage.work_again()
    stage.until_works()
    stage.finish()


def _rebooted(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    stage.work_again()
    stage.admin.reboot(stage.until_node()["name"])
    stage.until_works()
    stage.finish()


def job_hangs(stage: Stage) -> None:
    """Suspend the processes of a job, wait until the agent ends them, and reset its signals."""
    processes = stage.vm_processes("training.work")
    for process in processes:
        process.suspend()
    # While its stacks are dumped, a suspended job runs for a step, and reports it.
    stage.until(lambda: not any(process.is_running() for process in processes), "the job's end")
    stage.work_again()


def _hangs_once(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    job_hangs(stage)
    stage.until_works()
    stage.finish()


def _hangs_again(stage: Stage) -> None:
    stage.start()
    stage.until_works()
    job_hangs(stage)
    stage.until_works()
    job_hangs(stage)


SCENARIOS = (
    Scenario(
        id="vm-never-boots",
        title="the first VM never reports; another one does",
        expected=Layer.TEARDOWN,
        disturb=_first_never_boots,
        ends="success",
        config=QUICK_TO_DOUBT,
    ),
    Scenario(
        id="vms-never-boot",
        title="no VM ever reports; the run gives up; no teardown",
        expected=Layer.TASK,
        disturb=_none_boots,
        bound=150,
        config=QUICK_TO_DOUBT,
    ),
    Scenario(
        id="vm-hangs",
        title="the whole VM hangs; the job runs on another one",
        expected=Layer.TEARDOWN,
        disturb=_silent,
        ends="success",
        config=QUICK_TO_DOUBT,
    ),
    Scenario(
        id="job-hangs",
        title="the job hangs; it is started again on the same TPU",
        expected=Layer.TEARDOWN,
        disturb=_hangs_once,
        ends="success",
        config=QUICK_TO_CALL_IT_HUNG,
        check=one_tpu,
    ),
    Scenario(
        id="job-hangs-again",
        title="the job hangs once more than it may; no further TPU is rented",
        expected=Layer.TEARDOWN,
        disturb=_hangs_again,
        config=QUICK_TO_CALL_IT_HUNG,
        check=one_tpu,
    ),
    Scenario(
        id="agent-killed",
        title="the agent is killed; it comes back and runs the job again",
        expected=Layer.TEARDOWN,
        disturb=_agent_killed,
        ends="success",
    ),
    Scenario(
        id="vm-rebooted",
        title="the VM reboots; the job runs again on it",
        expected=Layer.TEARDOWN,
        disturb=_rebooted,
        ends="success",
    ),
)
