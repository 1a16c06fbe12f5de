"""The real boot script and agent on the emulated TPU VM, created through the real client."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from pipeline_store.formats import AgentHello, ExitKind
from tests.tpu_agent.world import TOKEN, World, wait_for
from tpu_emulator.testing import RunningEmulator, start_emulator
from tpu_lifecycle.launcher import boot_metadata

NODE_ID = "bert-0a1b2c3d4e5f-g1-a1"


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[RunningEmulator]:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    with start_emulator(tmp_path, vm_env={"PATH": path}, vm_grace=10.0) as emulator:
        yield emulator


@pytest.fixture
def client(emulator: RunningEmulator) -> Iterator[Any]:
    with grpc.insecure_channel(emulator.endpoint) as channel:
        yield tpu_v2.TpuClient(transport=TpuGrpcTransport(host=emulator.endpoint, channel=channel))


def create(client: Any, emulator: RunningEmulator, world: World, accelerator_type: str) -> None:
    metadata = boot_metadata(
        mailbox_uri=world.mailbox.root,
        released_uri=world.reservation.released,
        bundle_uri=world.bundle.uri,
        bundle_sha256=world.bundle.sha256,
        token=TOKEN,
        expires_at=world.expires_at,
        heartbeat_interval_seconds=0.2,
    )
    node = {
        "accelerator_type": accelerator_type,
        "runtime_version": "v2-alpha-tpuv5-lite",
        "metadata": metadata,
    }
    spec = {"parent": emulator.parent(), "node_id": NODE_ID, "node": node}
    client.create_queued_resource(
        request={
            "parent": emulator.parent(),
            "queued_resource_id": NODE_ID,
            "queued_resource": {"tpu": {"node_spec": [spec]}},
        },
        timeout=30,
    )


def test_a_node_boots_into_the_agent_and_runs_a_job(
    emulator: RunningEmulator, client: Any, world: World
) -> None:
    world.add_job("010-train", "train")
    create(client, emulator, world, "v5litepod-1")
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.token) == (ExitKind.OK, TOKEN)
    assert AgentHello.load(world.mailbox.hello(0)).started <= datetime.now(UTC)


def test_every_worker_of_a_slice_has_its_own_agent(
    emulator: RunningEmulator, client: Any, world: World
) -> None:
    create(client, emulator, world, "v5litepod-16")
    for worker in range(4):
        uri = world.mailbox.hello(worker)
        hello = wait_for(f"worker {worker}", partial(AgentHello.load_or_none, uri))
        assert hello.worker == worker


def test_preemption_lets_the_job_save_and_leaves_no_process(
    emulator: RunningEmulator, client: Any, world: World
) -> None:
    world.add_job("010-train", "waits")
    create(client, emulator, world, "v5litepod-1")
    wait_for("output", lambda: "started" in world.log("010-train"))
    emulator.admin.preempt(f"{emulator.parent()}/nodes/{NODE_ID}")
    assert world.wait_status("010-train").exit_kind is ExitKind.PREEMPTED
    wait_for("the VM's end", lambda: not pids(emulator))


def test_reboot_goes_on_with_the_job(emulator: RunningEmulator, client: Any, world: World) -> None:
    world.add_job("010-train", "waits")
    create(client, emulator, world, "v5litepod-1")
    world.wait_starts(1)
    emulator.admin.reboot(f"{emulator.parent()}/nodes/{NODE_ID}")
    world.wait_starts(2)
    world.go()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 1)
    assert AgentHello.load(world.mailbox.hello(0)).starts == 2


def pids(emulator: RunningEmulator) -> list[int]:
    """Return the processes of all VMs."""
    table = emulator.admin.table()
    workers = [worker for node in table["nodes"] for worker in node["workers"]]
    return table["orphan_pids"] + [pid for worker in workers for pid in worker["pids"]]
