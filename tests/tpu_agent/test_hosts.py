"""What a job is told of the other hosts of its slice."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline_store.formats import ExitKind, JobStatus
from tests.tpu_agent.cloud import NODE_ID, cloud
from tests.tpu_agent.world import TOKEN, World, wait_for
from tpu_agent import hosts, metadata
from tpu_emulator.metadata import MetadataServer

SLICE = {
    "tpu-env": f"NODE_ID: '{NODE_ID}'\nWORKER_ID: '1'\n",
    "worker-network-endpoints": "unknown:unknown:10.0.0.1,unknown:unknown:10.0.0.2",
}


@contextmanager
def vm(monkeypatch: pytest.MonkeyPatch, attributes: dict[str, str]) -> Iterator[None]:
    server = MetadataServer(lambda: {"instance": {"attributes": attributes}})
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.port}")
    try:
        yield
    finally:
        server.close()


def test_each_host_of_a_slice_is_told_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with vm(monkeypatch, SLICE):
        first, second = (hosts.environment(worker, TOKEN) for worker in (0, 1))
        other = hosts.environment(0, "b" * 32)
    joined = json.loads(second["TF_CONFIG"])
    assert joined["task"] == {"type": "worker", "index": 1}
    assert joined["cluster"] == json.loads(first["TF_CONFIG"])["cluster"]
    addresses = [worker.split(":") for worker in joined["cluster"]["worker"]]
    assert [address for address, _ in addresses] == ["10.0.0.1", "10.0.0.2"]
    # Not the same, as an emulator has all hosts on one machine; below those of outgoing calls.
    ports = [int(port) for _, port in addresses]
    assert ports[1] == ports[0] + 1
    assert 20_000 <= ports[0] < ports[1] <= 30_000
    assert json.loads(other["TF_CONFIG"])["cluster"] != joined["cluster"]


@pytest.mark.parametrize(
    "changes",
    [
        {"worker-network-endpoints": "unknown:unknown:10.0.0.1"},
        {"tpu-env": SLICE["tpu-env"] + "MEGASCALE_SLICE_ID: '0'\n"},
    ],
    ids=["one host", "several slices"],
)
def test_a_host_that_is_not_to_be_joined_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    with vm(monkeypatch, SLICE | changes):
        assert hosts.environment(0, TOKEN) == {}


def test_neither_is_a_machine_without_such_attributes_or_without_a_metadata_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with vm(monkeypatch, {}):
        assert hosts.environment(0, TOKEN) == {}
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    assert hosts.environment(0, TOKEN) == {}


def test_a_job_does_not_start_alone_because_the_metadata_server_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "_PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(metadata, "_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(OSError, match=r"does not say what .*worker-network-endpoints"):
            hosts.environment(0, TOKEN)


@pytest.mark.thorough
def test_the_jobs_of_a_slice_get_what_joins_them(tmp_path: Path, world: World) -> None:
    workers = 4
    with cloud(tmp_path, world, vm_grace=5.0) as tpu:
        world.add_job("010-train", "joined")
        tpu.create("v5litepod-16")
        for worker in range(workers):
            uri = world.mailbox.status(worker, "010-train")
            status: Any = wait_for(f"worker {worker}", lambda at=uri: JobStatus.load_or_none(at))
            assert status.exit_kind is ExitKind.OK, status.message
    told = [json.loads((world.scratch / f"joined-{n}").read_text()) for n in range(workers)]
    assert [config["task"]["index"] for config in told] == list(range(workers))
    assert len({json.dumps(config["cluster"]) for config in told}) == 1
    assert len(set(told[0]["cluster"]["worker"])) == workers
