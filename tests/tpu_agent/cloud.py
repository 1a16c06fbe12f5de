"""An emulated cloud whose TPU VMs boot into the real agent and switch."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.tpu_agent.world import JOB_KEY, TOKEN, World, wait_for
from tpu_emulator.testing import RunningEmulator, start_emulator
from tpu_lifecycle.boot.launcher import boot_metadata

NODE_ID = "bert-0a1b2c3d4e5f-g1-a1"
RUNTIME_VERSION = "v2-alpha-tpuv5-lite"
DELETIONS = ("DeleteQueuedResource", "DeleteNode")


@dataclass
class Cloud:
    """One emulator, and a world whose TPU is created in it through the real client."""

    emulator: RunningEmulator
    client: Any
    world: World

    @property
    def node_name(self) -> str:
        return f"{self.emulator.parent()}/nodes/{NODE_ID}"

    @property
    def queued_name(self) -> str:
        return f"{self.emulator.parent()}/queuedResources/{NODE_ID}"

    def metadata(self, **changes: Any) -> dict[str, str]:
        arguments: dict[str, Any] = {
            "mailbox_uri": self.world.mailbox.root,
            "released_uri": self.world.reservation.released,
            "bundle_uri": self.world.bundle.uri,
            "bundle_sha256": self.world.bundle.sha256,
            "token": TOKEN,
            "job_key": JOB_KEY,
            "expires_at": self.world.expires_at,
            "heartbeat_interval_seconds": 0.2,
            "tpu_name": self.queued_name,
            "tpu_api_endpoint": self.emulator.endpoint,
            "tpu_deletions": [],
            "lease_timeout_seconds": 3600.0,
            "container_image": None,
        }
        return boot_metadata(**arguments | changes)

    def create(self, accelerator_type: str = "v5litepod-1", **changes: Any) -> None:
        """Ask for a queued resource with one node; it boots by itself."""
        node = self._node(accelerator_type, self.metadata(**changes))
        self._create_queued({"parent": self.emulator.parent(), "node_id": NODE_ID, "node": node})

    def _create_queued(self, spec: dict[str, Any]) -> None:
        self.client.create_queued_resource(
            request={
                "parent": self.emulator.parent(),
                "queued_resource_id": NODE_ID,
                "queued_resource": {"tpu": {"node_spec": [spec]}},
            },
            timeout=30,
        )

    def create_slices(self, accelerator_type: str, count: int, **changes: Any) -> None:
        """Ask for a queued resource with several slices."""
        spec = {
            "parent": self.emulator.parent(),
            "multislice_params": {"node_count": count, "node_id_prefix": NODE_ID},
            "node": self._node(accelerator_type, self.metadata(**changes)),
        }
        self._create_queued(spec)

    def create_node(self, **changes: Any) -> None:
        """Create a node without a queued resource."""
        metadata = self.metadata(tpu_name=self.node_name, **changes)
        request = {
            "parent": self.emulator.parent(),
            "node_id": NODE_ID,
            "node": self._node("v5litepod-1", metadata),
        }
        self.client.create_node(request=request, timeout=30)

    @staticmethod
    def _node(accelerator_type: str, metadata: dict[str, str]) -> dict[str, Any]:
        return {
            "accelerator_type": accelerator_type,
            "runtime_version": RUNTIME_VERSION,
            "metadata": metadata,
        }

    def pids(self) -> list[int]:
        """Return the processes of all VMs."""
        pids: list[int] = self.emulator.admin.table()["orphan_pids"]
        return pids + [pid for worker in self.workers() for pid in worker["pids"]]

    def workers(self) -> list[dict[str, Any]]:
        """Return what the emulator knows of the workers of all nodes."""
        return [w for node in self.emulator.admin.table()["nodes"] for w in node["workers"]]

    def wait_process(self, module: str) -> psutil.Process:
        """Return the process of a VM that runs a module, once there is one."""

        def probe() -> psutil.Process | None:
            for pid in self.pids():
                try:
                    process = psutil.Process(pid)
                    if process.cmdline()[1:3] == ["-m", module]:
                        return process
                except psutil.Error:
                    continue
            return None

        process: psutil.Process = wait_for(module, probe)
        return process

    def freeze_agent(self) -> None:
        """Let the agent hang: it neither works nor ends."""
        self.wait_process("tpu_agent").send_signal(signal.SIGSTOP)

    def is_there(self) -> bool:
        """Return whether queued resource or node exist, in whatever state."""
        table = self.emulator.admin.table()
        return bool(table["queued_resources"] or table["nodes"])

    def wait_gone(self) -> None:
        wait_for("the TPU's end", lambda: not self.is_there())
        assert self.pids() == []

    def deletions(self) -> list[dict[str, Any]]:
        """Return the recorded calls that ask for a deletion."""
        calls = [call for method in DELETIONS for call in self.emulator.admin.calls(method)]
        return sorted(calls, key=lambda call: int(call["id"]))


@contextmanager
def cloud(
    folder: Path, world: World, *, vm_grace: float, programs: Path | None = None
) -> Iterator[Cloud]:
    """Run an emulator whose VMs find this test's Python.

    :param programs: folder with programs that they find before all others.
    """
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    path = f"{programs}:{path}" if programs else path
    with (
        start_emulator(folder, vm_env={"PATH": path}, vm_grace=vm_grace) as emulator,
        grpc.insecure_channel(emulator.endpoint) as channel,
    ):
        transport = TpuGrpcTransport(host=emulator.endpoint, channel=channel)
        yield Cloud(emulator, tpu_v2.TpuClient(transport=transport), world)
