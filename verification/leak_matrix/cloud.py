"""The matrix's own access to the emulator: bystanders, leftovers, callers, cleanup."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tpu_emulator import processes
from tpu_emulator.admin import AdminClient
from verification.leak_matrix.layers import Layer, layer_of

T = TypeVar("T")
PROJECT = "local-project"
USER_AGENT = "leak-matrix"
BYSTANDER = "bystander"
DELETIONS = ("DeleteQueuedResource", "DeleteNode")
CREATIONS = ("CreateQueuedResource", "CreateNode")
LOOKS = ("GetQueuedResource", "GetNode")
CLEAR_SECONDS = 60.0
POLL_SECONDS = 0.5
PAST = "1700000000"


@dataclass(frozen=True)
class Left:
    """The resources left in some zones besides the bystanders."""

    nodes: tuple[str, ...] = ()
    queued_resources: tuple[str, ...] = ()
    processes: tuple[int, ...] = ()
    described: tuple[str, ...] = field(default=(), compare=False)

    @property
    def count(self) -> int:
        """Return the number of TPUs: a node and its queued resource count as one."""
        names = {name.rpartition("/")[2] for name in (*self.nodes, *self.queued_resources)}
        return max(len(names), 1 if self.processes else 0)

    def __str__(self) -> str:
        return ", ".join(self.described) or "nothing"


class Cloud:
    """The emulated cloud as the matrix sees it.

    :param socket: socket of the emulator.
    :param state_dir: state folder of the emulator, which identifies its VMs' processes.
    """

    def __init__(self, socket: Path, state_dir: Path) -> None:
        import grpc
        from google.api_core.gapic_v1.client_info import ClientInfo
        from google.cloud.tpu_v2 import TpuClient
        from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

        self.admin = AdminClient(socket)
        self._state_dir = str(state_dir)
        endpoint = f"unix:{socket}"
        self._client = TpuClient(
            transport=TpuGrpcTransport(host=endpoint, channel=grpc.insecure_channel(endpoint)),
            client_info=ClientInfo(user_agent=USER_AGENT),
        )

    def table(self) -> dict[str, Any]:
        """Return the emulator's table, waiting for an emulator that is restarting."""
        return _patiently(self.admin.table)

    def _calls(self, after: int = 0) -> list[dict[str, Any]]:
        return _patiently(lambda: self.admin.calls(after=after))

    def nodes(self, zones: Collection[str]) -> list[dict[str, Any]]:
        """Return the table's rows of the nodes in the zones, without bystanders."""
        return [node for node in self.table()["nodes"] if _is_in(node, zones)]

    def queued_resources(self, zones: Collection[str]) -> list[dict[str, Any]]:
        """Return the table's rows of the queued resources in the zones, without bystanders'."""
        return [row for row in self.table()["queued_resources"] if _is_in(row, zones)]

    def vm_processes(self, zones: Collection[str]) -> list[tuple[str, int]]:
        """Return VM and pid of every process of the zones' VMs, without bystanders'."""
        return [
            (marker, process.pid)
            for marker, found in processes.find(self._state_dir, {}).items()
            for process in found
            if marker.split("/")[0] in zones and not marker.split("/")[1].startswith(BYSTANDER)
        ]

    def left(self, zones: Collection[str]) -> Left:
        """Return what is in the zones besides bystanders, from the table and the process list.

        While there are nodes, the processes are not listed, because that takes long.
        """
        table = self.table()
        nodes = [n for n in table["nodes"] if _is_in(n, zones)]
        queued = [q for q in table["queued_resources"] if _is_in(q, zones)]
        running = [] if nodes else self.vm_processes(zones)
        return Left(
            nodes=tuple(n["name"] for n in nodes),
            queued_resources=tuple(q["name"] for q in queued),
            processes=tuple(pid for _, pid in running),
            described=(
                *(f"node {n['name']} {n['state']}" for n in nodes),
                *(f"queued resource {q['name']} {q['state']}" for q in queued),
                *(f"process {pid} of VM {marker}" for marker, pid in running),
            ),
        )

    def add_bystander(self, zone: str) -> None:
        """Create a TPU of another owner, unless it exists, with labels like ours, long expired."""
        from google.cloud import tpu_v2

        if self.bystander_lives(zone):
            return
        node = tpu_v2.Node(
            accelerator_type="v5litepod-1",
            runtime_version="v2-alpha-tpuv5-lite",
            metadata={"startup-script": "#!/bin/sh\nwhile :; do sleep 60; done\n"},
            labels={
                "owner": "another-team",
                "run-key": "0123456789ab",
                "generation": "1",
                "attempt": "1",
                "expires-at": PAST,
            },
        )
        name = f"{BYSTANDER}-{zone}"
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=_parent(zone), node_id=name, node=node)
        self._client.create_queued_resource(
            parent=_parent(zone),
            queued_resource_id=name,
            queued_resource=tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec])),
        )
        deadline = time.monotonic() + CLEAR_SECONDS
        while not self.bystander_lives(zone):
            if time.monotonic() > deadline:
                raise RuntimeError(f"bystander in {zone} does not start: {self.table()}")
            time.sleep(POLL_SECONDS)

    def bystander_lives(self, zone: str) -> bool:
        """Return whether a zone's bystander is READY and its VM runs."""
        return any(
            node["zone"] == zone
            and node["node_id"].startswith(BYSTANDER)
            and node["state"] == "READY"
            and all(worker["pids"] for worker in node["workers"])
            for node in self.table()["nodes"]
        )

    def last_call(self) -> int:
        """Return the number of the newest call so far."""
        return max((call["id"] for call in self._calls()), default=0)

    def calls(
        self, zones: Collection[str], methods: Collection[str], after: int
    ) -> list[dict[str, Any]]:
        """Return the calls in some zones after a given one, without the matrix's own."""
        return [
            call
            for call in self._calls(after=after)
            if call["zone"] in zones
            and call["method"] in methods
            and USER_AGENT not in call["caller"]
        ]

    def cleaned_by(self, zones: Collection[str], after: int) -> tuple[Layer | None, list[str]]:
        """Return the layer that made the last effective deletion, and all callers in order.

        None if its caller is none of the layers. A call whose reply was lost may have taken effect;
        it counts if no other did.
        """
        calls = self.calls(zones, DELETIONS, after)
        deletions = [call for call in calls if call["code"] == "OK"]
        deletions = deletions or [call for call in calls if call["code"] == "UNAVAILABLE"]
        callers = [str(layer_of(call["caller"]) or call["caller"]) for call in deletions]
        if not deletions:
            return Layer.NOBODY, callers
        return layer_of(deletions[-1]["caller"]), callers

    def clear(self, zones: Collection[str]) -> None:
        """Clear the faults of the zones and delete what is left in them.

        :raises RuntimeError: something cannot be deleted.
        """
        from google.api_core.exceptions import GoogleAPICallError
        from google.cloud import tpu_v2

        for zone in zones:
            self.admin.clear_faults(zone)
        deadline = time.monotonic() + CLEAR_SECONDS
        while left := self.left(zones):
            if not left.count:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"cannot be cleared: {left}")
            for name in left.queued_resources:
                with contextlib.suppress(GoogleAPICallError):
                    self._client.delete_queued_resource(
                        request=tpu_v2.DeleteQueuedResourceRequest(name=name, force=True)
                    )
            for name in left.nodes:
                with contextlib.suppress(GoogleAPICallError):
                    self._client.delete_node(name=name)
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Close the connections."""
        self.admin.close()
        self._client.transport.close()


def _patiently(ask: Callable[[], T]) -> T:
    import grpc

    deadline = time.monotonic() + CLEAR_SECONDS
    while True:
        try:
            return ask()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def _is_in(entry: dict[str, Any], zones: Collection[str]) -> bool:
    is_bystander = entry["name"].rpartition("/")[2].startswith(BYSTANDER)
    return entry["zone"] in zones and not is_bystander


def _parent(zone: str) -> str:
    return f"projects/{PROJECT}/locations/{zone}"
