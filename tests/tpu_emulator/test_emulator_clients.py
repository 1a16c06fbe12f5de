from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport

from tests.tpu_emulator.support import Tpu, node_body, unique
from tpu_emulator.__main__ import main
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
    """The answer of a command, run in this process as that is faster."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(["admin", "--socket", str(tpu.emulator.socket), *arguments]) == 0
    return json.loads(output.getvalue()) if output.getvalue() else None


def test_the_command_line_shows_the_table_and_preempts(tpu: Tpu) -> None:
    name = tpu.active(node=node_body(labels={"owner": "cli"}))
    table = json.loads(_admin(tpu, "table").stdout)
    [row] = [row for row in table["nodes"] if row["node_id"] == name]
    assert row["labels"] == {"owner": "cli"}
    assert row["workers"][0]["pids"]
    _admin_json(tpu, "preempt", name, "--node-state", "TERMINATED")
    tpu.wait_queued(name, "SUSPENDED")
    assert tpu.node_state(name) == "TERMINATED"
    calls = _admin_json(tpu, "calls", "--method", "CreateQueuedResource")
    assert tpu.queued_name(name) in [call["name"] for call in calls]


COMMANDS = (
    ("fail-next GetNode --code INTERNAL --count 2", "fail"),
    ("burst * --seconds 60 --codes ABORTED,INTERNAL --share 0.5 --seed 3", "fail"),
    ("delay-next CreateNode --seconds 0.5 --commit-late", "delay"),
    ("lose-reply DeleteNode --caller somebody", "lose-reply"),
    ("duplicate-next CreateNode", "duplicate"),
    ("deny CreateNode", "deny"),
    ("stockout --shape lro", "stockout"),
    ("quota us-west4-a V5LITE_POD --chips 8", "quota"),
    ("fail-operation CreateNode --code ABORTED", "fail-operation"),
    ("fail-operation DeleteNode --after-effect", "fail-operation-after-effect"),
    ("slow-operation * --seconds 3", "slow-operation"),
    ("stick-deleting us-west4-a --seconds 9 --count 2", "stuck-deleting"),
    ("stale-lists 5 --duration 60", "stale-lists"),
    ("preempt-after us-west4-a --seconds 60 --since CREATING --node-state GONE", "preempt-after"),
    ("preempt-when-file us-west4-a /tmp/none/*", "preempt-when-file"),
    ("arm-worker us-west4-a 2 hang --seconds 1", "worker"),
    ("chaos 5 --mean-seconds 1000 --kinds stockout,burst", "chaos"),
)


def test_the_command_line_arms_every_fault(tpu: Tpu) -> None:
    for command, _ in COMMANDS:
        name, *arguments = command.split()
        zone = [] if "us-west4-a" in arguments else ["--zone", "us-west4-a"]
        assert not _admin_json(tpu, name, *arguments, *zone)
    armed = _admin_json(tpu, "faults")
    assert [fault["kind"] for fault in armed] == [kind for _, kind in COMMANDS]
    assert {fault["zone"] for fault in armed} == {"us-west4-a"}
    assert armed[1]["details"]["codes"] == ["ABORTED", "INTERNAL"]
    assert armed[2]["details"] == {"wait": 0.5, "commit_late": True}
    assert armed[3]["caller"] == "somebody"
    assert _admin_json(tpu, "allow", "CreateNode") == 1
    assert _admin_json(tpu, "unstick", "--zone", "us-west4-a") == 0
    assert _admin_json(tpu, "clear-faults", "--zone", "us-central1-a") == 0
    assert _admin_json(tpu, "clear-faults") == len(COMMANDS) - 2
    refused = _admin(tpu, "lose-reply", "Nonsense")
    assert refused.returncode == 1
    assert "unknown method 'Nonsense'" in refused.stderr


def test_the_command_line_disturbs_nodes_and_prints_the_books(lonely: Tpu) -> None:
    tpu, name = lonely, lonely.active()
    _admin_json(tpu, "notice", name, "--kind", "maintenance", "--seconds", "600")
    _admin_json(tpu, "reboot", name)
    _admin_json(tpu, "vanish", name)
    tpu.wait_gone(name)
    history = _admin_json(tpu, "history", tpu.node_name(name))
    assert [change["state"] for change in history] == ["CREATING", "READY", "GONE"]
    assert name in [row["node_id"] for row in _admin_json(tpu, "bill")["nodes"]]
    plan = _admin_json(tpu, "chaos-plan", "1", "--events", "3")
    assert plan == tpu.admin.chaos_plan(1, events=3)


def test_every_command_explains_itself() -> None:
    help_of_all = _run("admin", "--socket", "none", "--help")
    commands = re.findall(r"^    ([a-z][a-z-]+)", help_of_all, re.MULTILINE)
    assert {command.split()[0] for command, _ in COMMANDS} < set(commands)
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            _quiet_main("admin", "--socket", "none", command, "--help")
        assert ended.value.code == 0
    assert "serve" in _run("--help")
    assert "--clock-skew" in _run("serve", "--help")


def _quiet_main(*arguments: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        main([*arguments])


def _run(*arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "tpu_emulator", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout


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
        start_emulator(state_folder, project="acme", vm_env={"COLOR": "blue=green"}) as emulator,
        connect(emulator) as tpu,
    ):
        name = tpu.active(node=node_body('#!/bin/sh\necho "color $COLOR"\n'))
        wait_for(lambda: tpu.worker(name)["startup_script_exit"] == 0)
        log = Path(tpu.worker(name)["directory"]) / "serial.log"
        assert "color blue=green" in log.read_text()
        assert tpu.parent.startswith("projects/acme/")
