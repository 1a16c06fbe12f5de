from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport

from tests.tpu_emulator.support import Tpu, node_body, unique
from tpu_emulator.testing import start_emulator

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_asynchronous_client_goes_the_whole_way(tpu: Tpu) -> None:
    async def run() -> None:
        endpoint = tpu.emulator.endpoint
        async with grpc.aio.insecure_channel(endpoint) as channel:
            client = tpu_v2.TpuAsyncClient(
                transport=TpuGrpcAsyncIOTransport(host=endpoint, channel=channel)
            )
            name = unique()
            operation = await client.create_queued_resource(request=tpu.queued_request(name))
            created = await operation.result(timeout=20)

            async def state() -> str:
                found = await client.get_queued_resource(name=created.name, timeout=20)
                return found.state.state.name

            while await state() != "ACTIVE":
                await asyncio.sleep(0.02)
            pager = await client.list_nodes(parent=tpu.parent)
            assert tpu.node_name(name) in [node.name async for node in pager]
            request = {"name": created.name, "force": True}
            operation = await client.delete_queued_resource(request=request)
            await operation.result(timeout=20)
            try:
                await client.get_queued_resource(name=created.name)
            except exceptions.NotFound:
                return
            raise AssertionError("the queued resource is still there")

    asyncio.run(run())


def test_many_threads_create_and_delete_at_once(tpu: Tpu) -> None:
    def cycle(_: int) -> None:
        name = tpu.active(node=node_body("#!/bin/sh\nexec sleep 600\n"))
        tpu.delete_queued(name).result(timeout=30)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(cycle, range(24)))
    assert tpu.admin.table()["orphan_pids"] == []


def test_concurrent_creates_of_one_name_have_one_winner(tpu: Tpu) -> None:
    name = unique()

    def create(_: int) -> bool:
        try:
            tpu.create_queued(name)
        except exceptions.AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1


def _admin(tpu: Tpu, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpu_emulator", "admin"]
    return subprocess.run(
        [*command, "--socket", str(tpu.emulator.socket), *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _admin_json(tpu: Tpu, *arguments: str) -> Any:
    result = _admin(tpu, *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout) if result.stdout else None


def test_the_command_line_shows_the_table_and_preempts(tpu: Tpu) -> None:
    name = tpu.active(node=node_body(labels={"owner": "cli"}))
    [row] = [r for r in _admin_json(tpu, "table")["nodes"] if r["node_id"] == name]
    assert row["labels"] == {"owner": "cli"}
    assert row["workers"][0]["pids"]
    _admin_json(tpu, "preempt", name, "--node-state", "TERMINATED")
    tpu.wait_queued(name, "SUSPENDED")
    assert tpu.node_state(name) == "TERMINATED"
    calls = _admin_json(tpu, "calls", "--method", "CreateQueuedResource")
    assert tpu.queued_name(name) in [call["name"] for call in calls]


def test_the_command_line_arms_every_fault(tpu: Tpu) -> None:
    _admin_json(tpu, "fail-next", "GetNode", "--code", "INTERNAL", "--count", "2")
    _admin_json(tpu, "stockout", "--zone", "us-west4-a", "--shape", "lro")
    _admin_json(tpu, "delay-next", "CreateNode", "--seconds", "0.5", "--commit-late")
    _admin_json(tpu, "lose-reply", "DeleteNode")
    armed = _admin_json(tpu, "faults")
    assert [fault["kind"] for fault in armed] == ["fail", "stockout", "delay", "lose-reply"]
    assert armed[2]["details"] == {"seconds": 0.5, "commit_late": True}
    assert _admin_json(tpu, "clear-faults") == {"cleared": 4}
    refused = _admin(tpu, "lose-reply", "Nonsense")
    assert refused.returncode == 1
    assert "unknown method 'Nonsense'" in refused.stderr


def test_the_command_line_says_when_nobody_serves(tpu: Tpu, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpu_emulator", "admin", "--timeout", "0.5"]
    result = subprocess.run(
        [*command, "--socket", str(tmp_path / "none.sock"), "table"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "is an emulator serving there?" in result.stderr


def test_options_reach_the_vms(state_folder: Path) -> None:
    from tests.tpu_emulator.support import connect
    from tpu_emulator.testing import wait_for

    with (
        start_emulator(state_folder, project="acme", vm_env={"COLOUR": "blue=green"}) as emulator,
        connect(emulator) as tpu,
    ):
        name = tpu.active(node=node_body('#!/bin/sh\necho "colour $COLOUR"\n'))
        wait_for(lambda: tpu.worker(name)["startup_script_exit"] == 0)
        log = Path(tpu.worker(name)["directory"]) / "serial.log"
        assert "colour blue=green" in log.read_text()
        assert tpu.parent.startswith("projects/acme/")
