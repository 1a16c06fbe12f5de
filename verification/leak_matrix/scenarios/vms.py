"""The TPU VM does not boot, falls silent, reboots, or loses its agent."""

from __future__ import annotations

import contextlib

import psutil

from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.stage import Stage

QUICK_TO_DOUBT = {
    "tpu.boot_timeout_seconds": 20,
    "tpu.heartbeat_timeout_seconds": 10.0,
}
BOOT = "no-boot"


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
