"""The real boot script and agent on the emulated TPU VM, created through the real client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from pipeline_store.formats import AgentHello, AttemptEvent, AttemptMark, ExitKind, JobStatus
from tests.tpu_agent.cloud import NODE_ID, Cloud, cloud
from tests.tpu_agent.played_docker import IMAGE, PlayedDocker
from tests.tpu_agent.world import TOKEN, World, wait_for
from tpu_lifecycle.control.verdict import Facts, Outcome, judge_job
from tpu_lifecycle.service.backend import TpuName, TpuState


@pytest.fixture
def tpu(tmp_path: Path, world: World) -> Iterator[Cloud]:
    with cloud(tmp_path, world, vm_grace=10.0) as running:
        yield running


@pytest.mark.thorough
def test_a_node_boots_into_the_agent_and_runs_a_job(tpu: Cloud, world: World) -> None:
    world.add_job("010-train", "train")
    tpu.create()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.token) == (ExitKind.OK, TOKEN)
    assert AgentHello.load(world.mailbox.hello(0)).started <= datetime.now(UTC)


@pytest.mark.thorough
def test_every_worker_of_a_slice_has_its_own_agent(tpu: Cloud, world: World) -> None:
    tpu.create("v5litepod-16")
    for worker in range(4):
        uri = world.mailbox.hello(worker)
        hello = wait_for(f"worker {worker}", partial(AgentHello.load_or_none, uri))
        assert hello.worker == worker


def test_one_worker_s_failure_fails_the_job_with_its_name_and_last_lines(
    tpu: Cloud, world: World
) -> None:
    world.add_job("010-train", "fails_on", "2")
    tpu.create("v5litepod-16")
    uri = world.mailbox.status(2, "010-train")
    status = wait_for("worker 2's status", partial(JobStatus.load_or_none, uri))
    now = datetime.now(UTC)
    verdict = judge_job(
        Facts(
            now=now,
            deadline=world.expires_at,
            tpu=TpuState(TpuName("us-central1-a", NODE_ID), "ACTIVE", "READY"),
            ready=AttemptMark(event=AttemptEvent.READY, time=now, workers=4),
            statuses={2: status},
        )
    )
    assert (verdict.outcome, verdict.worker) == (Outcome.FAILED, 2)
    assert verdict.exit_kind is ExitKind.FAILED
    assert "training.fails_on on worker 2 ended with exit code 1 (failed)" in verdict.reason
    assert verdict.reason.endswith("RuntimeError: chip 7 is broken")


def test_preemption_lets_the_job_save_and_leaves_no_process(tpu: Cloud, world: World) -> None:
    world.add_job("010-train", "waits")
    tpu.create()
    wait_for("output", lambda: "started" in world.log("010-train"))
    tpu.emulator.admin.preempt(tpu.node_name)
    assert world.wait_status("010-train").exit_kind is ExitKind.PREEMPTED
    wait_for("the VM's end", lambda: not tpu.pids())


@pytest.mark.thorough
def test_reboot_goes_on_with_the_job(tpu: Cloud, world: World) -> None:
    world.add_job("010-train", "waits")
    tpu.create()
    world.wait_starts(1)
    tpu.emulator.admin.reboot(tpu.node_name)
    world.wait_starts(2)
    world.go()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 1)
    assert AgentHello.load(world.mailbox.hello(0)).starts == 2


@pytest.mark.thorough
def test_all_of_that_in_a_container(tmp_path: Path, world: World) -> None:
    world.add_job("010-train", "waits")
    docker = PlayedDocker(tmp_path / "docker")
    with cloud(tmp_path, world, vm_grace=10.0, programs=docker.bin) as tpu:
        tpu.create(container_image=IMAGE)
        world.wait_starts(1)
        tpu.emulator.admin.reboot(tpu.node_name)
        world.wait_starts(2)
        tpu.emulator.admin.preempt(tpu.node_name)
        assert world.wait_status("010-train").exit_kind is ExitKind.PREEMPTED
        wait_for("the VM's end", lambda: not tpu.pids())
    assert len(docker.calls("run")) == 2
    assert len(docker.calls("pull")) == 1
