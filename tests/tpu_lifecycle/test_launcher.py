"""The boot script brings up the agent on a machine with nothing but Python, and keeps it up."""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline_store import uris
from pipeline_store.formats import ExitKind
from tests.tpu_agent import giving_back
from tests.tpu_agent.played_docker import IMAGE
from tests.tpu_agent.world import JOB_KEY, PATIENCE, TOKEN, World, is_running, wait_for
from tests.tpu_lifecycle.booting import (
    OWN_NODE_PATH,
    PATHS,
    QUEUED_PATH,
    TPU_NAME,
    MetadataServer,
    Vm,
    deletions,
)
from tpu_agent import processes
from tpu_lifecycle.boot import boot, launcher


@pytest.fixture
def vm(tmp_path: Path, server: MetadataServer) -> Iterator[Vm]:
    vm = Vm(World(tmp_path), server)
    yield vm
    vm.power_off()


def test_boot_runs_the_jobs_and_the_agent_ends_when_released(vm: Vm) -> None:
    vm.world.add_job("010-train", "train")
    process = vm.boot()
    status = vm.world.wait_status("010-train")
    assert (status.exit_kind, status.token) == (ExitKind.OK, TOKEN)
    assert vm.hello().bundle_sha256 == vm.world.bundle.sha256
    assert f"folder {vm.folder}/tpu-agent/bundle-" in vm.world.log("010-train")
    assert vm.child("tpu_agent")
    vm.world.release()
    wait_for("the agent's end", lambda: "boot: the agent is finished" in vm.log)
    assert vm.child("tpu_agent") is None
    assert vm.child("tpu_agent.self_delete"), "the switch stays for as long as the VM"
    assert process.poll() is None


def test_a_killed_switch_is_started_again(vm: Vm) -> None:
    vm.boot()
    switch = wait_for("the switch", lambda: vm.child("tpu_agent.self_delete"))
    wait_for("its first words", lambda: f"{TPU_NAME} expires at" in vm.log)
    switch.kill()
    wait_for("another one", lambda: vm.log.count(f"{TPU_NAME} expires at") == 2)
    assert "the switch ended with exit code -9; it is started again" in vm.log
    assert vm.child("tpu_agent.self_delete") != switch


def test_agent_and_switch_outlive_the_boot_script(vm: Vm) -> None:
    process = vm.boot()
    vm.hello()
    wait_for("the switch", lambda: f"{TPU_NAME} expires at" in vm.log)
    process.kill()
    process.wait()
    assert len(vm.orphans()) == 2


def test_a_killed_agent_is_started_again_without_a_second_trainer(vm: Vm) -> None:
    vm.world.add_job("010-train", "waits")
    vm.boot()
    trainer = vm.world.wait_starts(1)
    agent = vm.child("tpu_agent")
    assert agent
    agent.kill()
    vm.hello(starts=2)
    vm.world.wait_starts(2)
    assert not is_running(trainer)
    vm.world.go()
    assert vm.world.wait_status("010-train").exit_kind is ExitKind.OK
    assert [line.split(" ", 1)[1] for line in vm.world.starts()] == ["alone", "alone"]
    assert "the agent ended with exit code -9; it is started again" in vm.log


def test_a_reboot_repeats_nothing_and_goes_on(vm: Vm) -> None:
    vm.world.add_job("010-train", "exits", "0")
    vm.boot()
    vm.world.wait_status("010-train")
    vm.world.add_job("020-evaluate", "waits")
    vm.world.wait_starts(2)
    vm.power_off()
    vm.server.values["attributes/bundle-url"] = "file:///nowhere"  # it is on the disk already
    vm.boot()
    vm.world.wait_starts(3)
    vm.world.go()
    status = vm.world.wait_status("020-evaluate")
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 1)
    assert vm.hello().starts == 2
    assert len(vm.world.starts()) == 3


def test_sigterm_reaches_the_job(vm: Vm) -> None:
    vm.world.add_job("010-train", "waits")
    process = vm.boot()
    wait_for("output", lambda: "started" in vm.world.log("010-train"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, vm.log
    assert vm.world.wait_status("010-train").exit_kind is ExitKind.PREEMPTED
    assert processes.marked(vm.work_dir) == []
    [switch] = vm.orphans()
    assert "tpu_agent.self_delete" in switch.cmdline(), "only the VM's own end ends it"


def test_sigterm_while_the_agent_is_down_ends_the_script(vm: Vm) -> None:
    vm.set({"heartbeat-interval": "soon"})  # the agent refuses its command line
    process = vm.boot()
    wait_for("a pause", lambda: (vm.folder / "serial.log").exists() and "in 2 s" in vm.log)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert "invalid float value: 'soon'" in vm.log


def test_a_bundle_with_another_hash_is_refused(vm: Vm) -> None:
    vm.world.add_job("010-train", "train")
    with Path(vm.world.bundle.uri).open("ab") as bundle:
        bundle.write(b"x")
    assert vm.boot().wait(PATIENCE) == 1
    assert f"expected {vm.world.bundle.sha256}: refused" in vm.log
    assert not list((vm.folder / "tpu-agent").iterdir())
    assert uris.list_files(vm.world.mailbox.workers) == []


def test_a_node_that_was_not_made_for_it_is_refused(vm: Vm) -> None:
    del vm.server.values["attributes/attempt-token"]
    assert vm.boot().wait(PATIENCE) == 1
    assert "the node has no metadata 'attempt-token'" in vm.log


@pytest.mark.parametrize(
    ("attributes", "worker"),
    [
        ({"agent-worker-number": "3"}, 3),
        ({"tpu-env": "ZONE: 'us-central1-a'\nWORKER_ID: '2'\nNODE_ID: 'x'\n"}, 2),
        ({"agent-worker-number": "0", "tpu-env": "WORKER_ID: '2'\n"}, 0),
        (
            {
                "tpu-env": "WORKER_ID: '1'\nMEGASCALE_SLICE_ID: '2'\n",
                "worker-network-endpoints": "unknown:unknown:10.0.0.1,unknown:unknown:10.0.0.2",
            },
            5,
        ),
        ({}, 0),
    ],
)
def test_worker_number(
    server: MetadataServer,
    monkeypatch: pytest.MonkeyPatch,
    attributes: dict[str, str],
    worker: int,
) -> None:
    monkeypatch.setattr(boot, "METADATA_HOST", f"127.0.0.1:{server.server_port}")
    server.values |= {f"attributes/{name}": value for name, value in attributes.items()}
    assert boot.worker_number(boot.tpu_env()) == worker


def test_the_agent_is_told_its_number(vm: Vm) -> None:
    vm.set({"tpu-env": "WORKER_ID: '2'\n"})
    vm.boot()
    assert vm.hello(2).worker == 2


def test_cloud_storage_is_shown_the_vm_s_own_token(
    tmp_path: Path, server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setattr(boot, "METADATA_HOST", address)
    monkeypatch.setattr(boot, "STORAGE", f"http://{address}/")
    server.values["service-accounts/default/token"] = '{"access_token": "vm-token"}'
    server.files["/storage/bundle"] = Path(world.bundle.uri).read_bytes()
    folder = boot.unpack(f"http://{address}/storage/bundle", world.bundle.sha256, tmp_path)
    assert (folder / "tpu_agent/__main__.py").is_file()


def test_a_vm_without_an_account_is_told_so(
    tmp_path: Path, server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setattr(boot, "METADATA_HOST", address)
    monkeypatch.setattr(boot, "STORAGE", f"http://{address}/")
    with pytest.raises(SystemExit, match=r"no service account.*tpu\.service_account"):
        boot.unpack(f"http://{address}/storage/bundle", "0" * 64, tmp_path)
    server.values["service-accounts/default/token"] = '{"access_token": "vm-token"}'
    with pytest.raises(SystemExit, match="/storage/bundle does not exist: clear the reserve"):
        boot.unpack(f"http://{address}/storage/bundle", "0" * 64, tmp_path)


def test_an_old_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    with pytest.raises(SystemExit, match=r"older than Python 3\.11"):
        boot.boot(tmp_path)


@pytest.fixture
def real_cloud(server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> MetadataServer:
    """The node of a service that speaks REST, asked by this process."""
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setattr(boot, "METADATA_HOST", address)
    server.values |= {
        "attributes/tpu-name": TPU_NAME,
        "attributes/tpu-deletions": deletions(server, QUEUED_PATH, OWN_NODE_PATH),
        "attributes/lease-timeout": "0",
        "attributes/expires-at": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
        "service-accounts/default/token": '{"access_token": "vm-token"}',
    }
    return server


@pytest.mark.parametrize("case", giving_back.CASES, ids=str)
def test_the_last_resort_is_plain_http(real_cloud: MetadataServer, case: giving_back.Case) -> None:
    if not case.is_queued:
        real_cloud.values["attributes/tpu-deletions"] = deletions(real_cloud, OWN_NODE_PATH)
    real_cloud.answers = list(case.answers)
    last_resort = boot.LastResort()
    last_resort.give_up_after(0)
    last_resort.tick()
    last_resort.tick()
    assert real_cloud.deletions == [PATHS[what] for what in case.asked], "and not again at once"


@pytest.mark.parametrize(("expired", "acts"), [(-60, False), (60, False), (700, True)])
def test_the_last_resort_lets_the_switch_go_first(
    real_cloud: MetadataServer, expired: int, acts: bool
) -> None:
    expires_at = datetime.now(UTC) - timedelta(seconds=expired)
    real_cloud.values["attributes/expires-at"] = expires_at.isoformat()
    real_cloud.answers = [200]
    boot.LastResort().tick()
    assert bool(real_cloud.deletions) is acts


def test_the_last_resort_survives_a_service_that_does_not_answer(
    real_cloud: MetadataServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real_cloud.values["attributes/tpu-deletions"] = "http://127.0.0.1:1/v2/x"
    last_resort = boot.LastResort()
    last_resort.give_up_after(0)
    last_resort.tick()
    assert "failed: URLError" in capsys.readouterr().out


def test_an_emulator_has_no_last_resort(real_cloud: MetadataServer) -> None:
    real_cloud.values["attributes/tpu-deletions"] = ""
    last_resort = boot.LastResort()
    last_resort.give_up_after(0)
    last_resort.tick()
    assert real_cloud.deletions == []


def supervise(folder: Path, agent: str, switch: str) -> boot.Supervisor:
    kept = (boot.KeepAlive(command, [command, "600"], folder) for command in (agent, switch))
    return boot.Supervisor(*kept, boot.LastResort())


def test_a_vm_on_which_nothing_starts_gives_itself_back(
    real_cloud: MetadataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "LONGEST_PAUSE", 1.5)
    real_cloud.answers = [200] * 99
    supervisor = supervise(tmp_path, "false", "false")
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    wait_for("a deletion", lambda: real_cloud.deletions)
    supervisor.stopping = True
    thread.join()
    assert real_cloud.deletions[0] == QUEUED_PATH


@pytest.mark.parametrize("commands", [("sleep", "false"), ("false", "sleep")])
def test_a_vm_on_which_one_of_them_works_is_not_useless(
    real_cloud: MetadataServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: tuple[str, str],
) -> None:
    monkeypatch.setattr(boot, "LONGEST_PAUSE", 1.0)
    supervisor = supervise(tmp_path, *commands)
    both = (supervisor.agent, supervisor.switch)
    for one in both:
        one.worked -= 3600.0
    assert supervisor.is_useless()

    def works() -> bool:
        for one in both:
            one.tick()
        return not supervisor.is_useless()

    wait_for("one that works", works)
    for one in both:
        while not one.end():
            pass


def test_a_vm_on_which_nothing_can_run_gives_itself_back(vm: Vm) -> None:
    asked = deletions(vm.server, QUEUED_PATH, OWN_NODE_PATH)
    vm.set({"tpu-deletions": asked, "lease-timeout": "1"})
    vm.server.values["service-accounts/default/token"] = '{"access_token": "vm-token"}'
    vm.server.answers = [200]
    Path(vm.world.bundle.uri).write_bytes(b"x")
    process = vm.boot()
    wait_for("a deletion", lambda: vm.server.deletions)
    assert vm.server.deletions == [QUEUED_PATH]
    assert "giving up, nothing is run: file://" in vm.log
    assert process.poll() is None
    assert uris.list_files(vm.world.mailbox.workers) == []


def test_metadata_that_is_away_does_not_keep_the_tpu(vm: Vm) -> None:
    asked = deletions(vm.server, QUEUED_PATH, OWN_NODE_PATH)
    vm.set({"tpu-deletions": asked, "lease-timeout": "1"})
    vm.server.values["service-accounts/default/token"] = '{"access_token": "vm-token"}'
    vm.server.answers = [200]
    vm.server.failures = 4
    script = launcher.BOOT_SCRIPT.read_text()
    vm.set({"startup-script": script.replace(str(boot.NETWORK_PAUSES), "(0.1,)")})
    process = vm.boot()
    wait_for("a deletion", lambda: vm.server.deletions)
    assert "cannot be read: HTTP Error 503" in vm.log
    assert process.poll() is None


def test_the_script_needs_the_standard_library_only() -> None:
    text = launcher.BOOT_SCRIPT.read_text()
    assert text.startswith("#!/usr/bin/env python3\n")
    imported: set[Any] = set()
    # Older ones than it runs the agent with: it has to say so, and to give the TPU back.
    for node in ast.walk(ast.parse(text, feature_version=(3, 8))):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert "hashlib" in imported
    assert imported <= sys.stdlib_module_names
    assert os.access(launcher.BOOT_SCRIPT, os.X_OK)


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        launcher.boot_metadata(
            mailbox_uri="/m",
            released_uri="/r",
            bundle_uri="/b",
            bundle_sha256="0" * 64,
            token=TOKEN,
            job_key=None,
            expires_at=datetime(2026, 1, 31),
            heartbeat_interval_seconds=30.0,
            tpu_name=TPU_NAME,
            tpu_api_endpoint="",
            tpu_deletions=[],
            lease_timeout_seconds=7200.0,
            container_image=None,
        )


@pytest.mark.parametrize(
    ("image", "scripts"),
    [
        (None, {"startup-script": launcher.BOOT_SCRIPT}),
        (
            IMAGE,
            {"startup-script": launcher.CONTAINER_SCRIPT, "boot-script": launcher.BOOT_SCRIPT},
        ),
    ],
)
def test_metadata_names_are_those_of_the_contract(
    image: str | None, scripts: dict[str, Path]
) -> None:
    launch: launcher.Launcher = launcher.boot_metadata
    metadata = launch(
        mailbox_uri="gs://b/m",
        released_uri="gs://b/r",
        bundle_uri="gs://b/bundles/x.zip",
        bundle_sha256="0" * 64,
        token=TOKEN,
        job_key=JOB_KEY,
        expires_at=datetime.fromisoformat("2026-01-31T12:00:00+02:00"),
        heartbeat_interval_seconds=30.0,
        tpu_name=TPU_NAME,
        tpu_api_endpoint="unix:/run/tpu/api.sock",
        tpu_deletions=["https://service/a", "https://service/b/{node}"],
        lease_timeout_seconds=7200.0,
        container_image=image,
    )
    assert {name: metadata.pop(name) for name in scripts} == {
        name: path.read_text() for name, path in scripts.items()
    }
    assert metadata.pop("container-image", None) == image
    assert metadata == {
        "mailbox-uri": "gs://b/m",
        "released-uri": "gs://b/r",
        "bundle-url": "https://storage.googleapis.com/storage/v1/b/b/o/bundles%2Fx.zip?alt=media",
        "bundle-sha256": "0" * 64,
        "attempt-token": TOKEN,
        "job-key": JOB_KEY,
        "expires-at": "2026-01-31T10:00:00+00:00",
        "heartbeat-interval": "30.0",
        "tpu-name": TPU_NAME,
        "tpu-api-endpoint": "unix:/run/tpu/api.sock",
        "tpu-deletions": "https://service/a\nhttps://service/b/{node}",
        "lease-timeout": "7200.0",
    }
