"""The admin service: JSON in, JSON out, on the same private socket as the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from tpu_emulator import resources
from tpu_emulator.admin_channel import SERVICE
from tpu_emulator.billing import bill
from tpu_emulator.errors import ApiError, not_found
from tpu_emulator.fault_commands import Command
from tpu_emulator.messages import NodeState, QueueState, StateInitiator, seconds
from tpu_emulator.names import split
from tpu_emulator.store import Store, WorkerRow
from tpu_emulator.vm import Vms


class AdminService:
    """The commands that `AdminClient` calls. Every method returns a JSON object.

    Raises:
        ApiError: the error that the command answers with.
    """

    def __init__(
        self,
        store: Store,
        vms: Vms,
        commands: Mapping[str, Command],
        prices: Mapping[str, float],
    ) -> None:
        """Takes the commands that change something, and prices of a chip-hour."""
        self._store = store
        self._vms = vms
        self._commands = commands
        self._prices = prices

    def handlers(self) -> grpc.GenericRpcHandler:
        """The gRPC handlers of all commands."""
        commands: dict[str, Command] = {
            "Table": self.table,
            "Calls": self.calls,
            "History": self.history,
            "Bill": self.bill,
            **self._commands,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(_json_handler(command))
                for name, command in commands.items()
            },
        )

    def table(self) -> dict[str, Any]:
        """The state of everything; `orphan_pids` are VM processes that no node accounts for."""
        with self._store.transaction():
            queued = self._store.queued_resources.all()
            nodes = self._store.nodes.all()
            workers = self._store.workers()
        pids = self._vms.pids()
        owned = {worker.marker for worker in workers}
        return {
            "queued_resources": [_queued_entry(item) for item in queued],
            "nodes": [
                _node_entry(node)
                | {"workers": [self._worker(w, pids) for w in workers if w.node == node.name]}
                for node in nodes
            ],
            "orphan_pids": sorted(
                pid for marker, found in pids.items() if marker not in owned for pid in found
            ),
        }

    def calls(self, method: str, after: int) -> dict[str, Any]:
        """The recorded calls with a greater id, of one method or (empty) of all."""
        rows = self._store.query(
            "SELECT * FROM calls WHERE id > ? AND (? = '' OR method = ?) ORDER BY id",
            after, method, method,
        )  # fmt: skip
        return {"calls": [dict(row) for row in rows]}

    def history(self, name: str) -> dict[str, Any]:
        """The state changes of a resource, by full name or id."""
        rows = self._store.history.states()
        known = {row["name"] for row in rows if name in (row["name"], split(row["name"])[1])}
        if name and not known:
            raise not_found(name)
        return {"changes": [row for row in rows if not name or row["name"] in known]}

    def bill(self) -> dict[str, Any]:
        """The cost of all nodes so far."""
        return bill(self._store, self._prices)

    def _worker(self, worker: WorkerRow, pids: dict[str, list[int]]) -> dict[str, Any]:
        return {
            "worker": worker.number,
            "pids": pids.get(worker.marker, []),
            "directory": str(self._vms.directory(worker.node, worker.number)),
            "metadata_port": worker.port,
            "boots": worker.boots,
            "dead": worker.dead,
            "startup_script_exit": worker.exit_code,
        }


def _json_handler(
    command: Callable[..., dict[str, Any]],
) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def handle(payload: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return json.dumps(command(**json.loads(payload))).encode()
        except ApiError as error:
            context.abort(error.code, error.message)

    return handle


def _queued_entry(queued: Any) -> dict[str, Any]:
    location, resource_id = split(queued.name)
    node_specs = resources.node_names(queued)
    first = next(iter(node_specs.values()))
    return {
        "name": queued.name,
        "zone": location.zone,
        "queued_resource_id": resource_id,
        "state": QueueState(queued.state.state).name,
        "state_initiator": StateInitiator(queued.state.state_initiator).name,
        "error": queued.state.failed_data.error.message,
        "tier": queued.WhichOneof("tier") or "on-demand",
        "labels": dict(first.labels),
        "created": seconds(queued.create_time),
        "nodes": list(node_specs),
    }


def _node_entry(node: Any) -> dict[str, Any]:
    location, node_id = split(node.name)
    return {
        "name": node.name,
        "zone": location.zone,
        "node_id": node_id,
        "state": NodeState(node.state).name,
        "accelerator_type": node.accelerator_type,
        "runtime_version": node.runtime_version,
        "labels": dict(node.labels),
        "created": seconds(node.create_time),
        "queued_resource": node.queued_resource,
    }
