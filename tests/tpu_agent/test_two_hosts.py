"""A training on two hosts, each with its agent: started, broken and gone on with by the agents."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from pipeline_store import uris
from pipeline_store.formats import ExitKind, Holder, JobStatus
from tests.tpu_agent.cloud import NODE_ID
from tests.tpu_agent.world import TOKEN, World, wait_for
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import ROOT, result
from tpu_agent import processes
from tpu_emulator.metadata import MetadataServer
from tpu_lifecycle.boot.bundle import build_bundle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

HOSTS = 2
PATIENCE = 400.0
SETTINGS = {
    "training__distribution_strategy": "multi_worker_mirrored",
    "training__train_steps": 600,
    "training__steps_per_loop": 10,
    "training__checkpoint_interval": 100,
}


class Slice:
    """Two agents as on the hosts of a slice, with the real trainer in their bundle."""

    def __init__(self, folder: Path, world: World, stack: ExitStack) -> None:
        self.world, self.folder = world, folder
        endpoints = ",".join(["unknown:unknown:127.0.0.1"] * HOSTS)
        environment = f"NODE_ID: '{NODE_ID}'\n"
        attributes = {"tpu-env": environment, "worker-network-endpoints": endpoints}
        self.server = MetadataServer(lambda: {"instance": {"attributes": attributes}})
        stack.callback(self.server.close)
        self.bundle = build_bundle(world.store)
        self.agents = [self._agent(number) for number in range(HOSTS)]
        stack.callback(self.close)

    def _agent(self, number: int) -> subprocess.Popen[bytes]:
        options = {
            "worker": str(number),
            "work_dir": str(self.work_dir(number)),
            "bundle_sha256": self.bundle.sha256,
            "stop_grace": "25",
        }
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "GCE_METADATA_HOST": f"127.0.0.1:{self.server.port}",
        }
        with (self.folder / f"agent-{number}.log").open("wb") as log:
            return subprocess.Popen(
                self.world.agent_command(**options),
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def work_dir(self, number: int) -> Path:
        return self.folder / f"work-{number}"

    def status(self, number: int, job_id: str) -> JobStatus:
        uri = self.world.mailbox.status(number, job_id)
        what = f"status of worker {number}"
        found: JobStatus = wait_for(what, partial(JobStatus.load_or_none, uri), PATIENCE)
        return found

    def log(self, number: int, job_id: str) -> str:
        folder = self.world.mailbox.log_chunk(number, job_id, 0).rpartition("/")[0]
        return "".join(uris.read(uri).decode() for uri in uris.list_files(folder))

    def kill_trainer(self, number: int) -> None:
        for pid in processes.marked(self.work_dir(number)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.cmdline()[1:3] == ["-m", "training.train"]:
                    process.kill()

    def close(self) -> None:
        for number, agent in enumerate(self.agents):
            agent.kill()
            agent.wait()
            processes.kill(self.work_dir(number))


@pytest.fixture
def hosts(tmp_path: Path, world: World) -> Iterator[Slice]:
    with ExitStack() as stack:
        yield Slice(tmp_path, world, stack)


def test_agents_join_their_hosts_and_begin_again_together_when_a_trainer_is_killed(
    hosts: Slice, world: World
) -> None:
    store = TinyStore.create(Path(world.store.root))
    manifest = store.partition("2026-01-01")
    both = store.run("both", tiny_config(**SETTINGS))
    holder = Holder(sequence=1, generation=1, attempt=1, token=TOKEN)
    holder.write(world.run.holder)
    world.add_job(
        "010-train",
        "train",
        arguments=["--run", both.root, "--store", store.layout.root, "--manifest", manifest],
        bundle_sha256=hosts.bundle.sha256,
        max_restarts=3,
    )
    wait_for("a checkpoint", lambda: uris.list_files(both.training.checkpoints), PATIENCE)
    hosts.kill_trainer(1)
    statuses = [hosts.status(number, "010-train") for number in range(HOSTS)]
    logs = [hosts.log(number, "010-train") for number in range(HOSTS)]
    assert [status.exit_kind for status in statuses] == [ExitKind.OK] * HOSTS, logs
    assert all(status.restarts >= 1 for status in statuses)
    print("restarts:", [status.restarts for status in statuses])
    assert "killed: worker 1 (127.0.0.1:" in logs[0]
    assert "starting it again" in logs[0]
    assert result(both).resumed_from
    assert result(both).train_steps == SETTINGS["training__train_steps"]
    # Both have said that they have the weights that are in the result.
    assert [result(both).weights_sha256[:16] in log for log in logs] == [True] * HOSTS
