"""Clients and requests for tests of the emulator."""

from __future__ import annotations

import itertools
import json
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import psutil
from google.api_core import exceptions
from google.api_core.gapic_v1.client_info import ClientInfo
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tpu_emulator.testing import ZONE, RunningEmulator, wait_for

ACCELERATOR = "v5litepod-8"
RUNTIME = "v2-alpha-tpuv5-lite"
SLEEP = "#!/bin/sh\nexec sleep 600\n"
Body = dict[str, Any]
_numbers = itertools.count()


def unique(prefix: str = "n") -> str:
    """A node or queued resource id that no other test uses."""
    return f"{prefix}-{next(_numbers)}"


def node_body(script: str = SLEEP, **fields: Any) -> Body:
    """A valid node of a create request."""
    metadata = {"startup-script": script} if script else {}
    return {
        "accelerator_type": ACCELERATOR,
        "runtime_version": RUNTIME,
        "metadata": metadata,
        **fields,
    }


class Tpu:
    """The unmodified synchronous client, with short names for what the tests repeat."""

    def __init__(
        self, emulator: RunningEmulator, client: tpu_v2.TpuClient, zone: str = ZONE
    ) -> None:
        self.emulator = emulator
        self.client = client
        self.admin = emulator.admin
        self.zone = zone
        self.parent = emulator.parent(zone)

    def queued_name(self, resource_id: str) -> str:
        return f"{self.parent}/queuedResources/{resource_id}"

    def node_name(self, node_id: str) -> str:
        return f"{self.parent}/nodes/{node_id}"

    def queued_request(self, resource_id: str, node: Body | None = None, **fields: Any) -> Body:
        """A CreateQueuedResource request for one node of the same id."""
        spec = {"parent": self.parent, "node_id": resource_id, "node": node or node_body()}
        return {
            "parent": self.parent,
            "queued_resource_id": resource_id,
            "queued_resource": {"tpu": {"node_spec": [spec]}, "spot": {}, **fields},
        }

    def names_in_zone(self) -> list[str]:
        """Full names of the zone's queued resources, and of its nodes without one."""
        table = self.admin.table()
        nodes = [row for row in table["nodes"] if not row["queued_resource"]]
        rows = [*table["queued_resources"], *nodes]
        return [row["name"] for row in rows if row["zone"] == self.zone]

    def create_queued(self, resource_id: str, node: Body | None = None, **fields: Any) -> Any:
        request = self.queued_request(resource_id, node, **fields)
        return self.client.create_queued_resource(request=request, timeout=20)

    def create_node(self, node_id: str, node: Body | None = None) -> Any:
        request = {"parent": self.parent, "node_id": node_id, "node": node or node_body()}
        return self.client.create_node(request=request, timeout=20)

    def delete_queued(self, resource_id: str, *, force: bool = True, **fields: Any) -> Any:
        request = {"name": self.queued_name(resource_id), "force": force, **fields}
        return self.client.delete_queued_resource(request=request, timeout=20)

    def queued_state(self, resource_id: str) -> str:
        name = self.queued_name(resource_id)
        return self.client.get_queued_resource(name=name, timeout=20).state.state.name

    def node_state(self, node_id: str) -> str:
        return self.client.get_node(name=self.node_name(node_id), timeout=20).state.name

    def wait_queued(self, resource_id: str, state: str) -> None:
        wait_for(lambda: self.queued_state(resource_id) == state)

    def wait_queued_exists(self, resource_id: str) -> None:
        """Waits until the request is known, in any state."""
        wait_for(lambda: self._exists(self.queued_state, resource_id))

    def wait_node(self, node_id: str, state: str) -> None:
        wait_for(lambda: self.node_state(node_id) == state)

    def active(self, resource_id: str = "", node: Body | None = None, **fields: Any) -> str:
        """Creates a queued resource, waits until it is ACTIVE and returns its id."""
        resource_id = resource_id or unique()
        self.create_queued(resource_id, node, **fields)
        self.wait_queued(resource_id, "ACTIVE")
        return resource_id

    def entry(self, node_id: str) -> Body:
        """The node's row in the admin table."""
        [found] = [row for row in self.admin.table()["nodes"] if row["node_id"] == node_id]
        return found

    def worker(self, node_id: str, number: int = 0) -> Body:
        return self.entry(node_id)["workers"][number]

    def wait_gone(self, resource_id: str) -> None:
        """Waits until no queued resource and no node of this id is left."""
        wait_for(lambda: not self._exists(self.queued_state, resource_id))
        wait_for(lambda: not self._exists(self.node_state, resource_id))

    def _exists(self, state: Callable[[str], str], resource_id: str) -> bool:
        try:
            state(resource_id)
        except exceptions.NotFound:
            return False
        return True


@contextmanager
def connect(
    emulator: RunningEmulator, zone: str = ZONE, user_agent: str | None = None
) -> Iterator[Tpu]:
    """A client on a channel of its own."""
    with grpc.insecure_channel(emulator.endpoint) as channel:
        info = ClientInfo(user_agent=user_agent)
        transport = TpuGrpcTransport(host=emulator.endpoint, channel=channel, client_info=info)
        client = tpu_v2.TpuClient(transport=transport, client_info=info)
        yield Tpu(emulator, client, zone)


def metadata(port: int, path: str, *, header: bool = True) -> str:
    """Reads a path below `/computeMetadata/v1/` as a program on the VM would."""
    with _open_metadata(port, path, header=header) as response:
        return response.read().decode()


def metadata_headers(port: int, path: str) -> Mapping[str, str]:
    with _open_metadata(port, path) as response:
        return response.headers


def _open_metadata(port: int, path: str, *, header: bool = True) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/computeMetadata/v1/{path}",
        headers={"Metadata-Flavor": "Google"} if header else {},
    )
    return urllib.request.urlopen(request, timeout=20)  # noqa: S310


def metadata_json(port: int, path: str) -> Any:
    return json.loads(metadata(port, path))


def new_request_id() -> str:
    return str(uuid.uuid4())


def alive(pids: list[int]) -> list[int]:
    """Those of the processes that still run; an orphan nobody waits for may stay a zombie."""
    return [pid for pid in pids if status(pid) not in {None, psutil.STATUS_ZOMBIE}]


def status(pid: int) -> str | None:
    """What the process does; None when it has ended and its parent knows."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return None
