"""The admin service: JSON in, JSON out, on the same private socket as the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import grpc

from tpu_emulator import faults as kinds
from tpu_emulator import resources
from tpu_emulator.admin import SERVICE
from tpu_emulator.catalog import ZONES
from tpu_emulator.errors import (
    ApiError,
    code_named,
    failed_precondition,
    invalid_argument,
    not_found,
)
from tpu_emulator.faults import Faults
from tpu_emulator.lifecycle import Lifecycle
from tpu_emulator.messages import NodeState, QueueState, StateInitiator, seconds
from tpu_emulator.names import split
from tpu_emulator.queue_lifecycle import GONE
from tpu_emulator.store import Store, WorkerRow
from tpu_emulator.vm import Vms

_OUTCOMES = ("PREEMPTED", "TERMINATED", GONE)
_SHAPES = ("sync", "lro", "state", "wait")
_PREEMPTIBLE = (NodeState.CREATING, NodeState.STARTING, NodeState.READY)


class AdminService:
    """What `AdminClient` calls. Every method returns a JSON object.

    Raises:
        ApiError: what the command answers instead.
    """

    def __init__(
        self,
        store: Store,
        lifecycle: Lifecycle,
        vms: Vms,
        faults: Faults,
        methods: Collection[str],
    ) -> None:
        """Takes the names of the API methods that faults may name in `methods`."""
        self._store = store
        self._methods = sorted(methods)
        self._lifecycle = lifecycle
        self._vms = vms
        self._faults = faults

    def handlers(self) -> grpc.GenericRpcHandler:
        """The gRPC handlers of all commands."""
        commands: dict[str, Callable[..., dict[str, Any]]] = {
            "Table": self.table,
            "Calls": self.calls,
            "Preempt": self.preempt,
            "Reboot": self.reboot,
            "FailNext": self.fail_next,
            "Stockout": self.stockout,
            "DelayNext": self.delay_next,
            "LoseReply": self.lose_reply,
            "Faults": self.faults,
            "ClearFaults": self.clear_faults,
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

    def preempt(self, node: str, node_state: str) -> dict[str, Any]:
        """Starts a preemption; returns before it is over."""
        _check_choice("node state", node_state, _OUTCOMES)
        with self._store.transaction():
            found = self._find_node(node)
            if found.state not in _PREEMPTIBLE:
                raise failed_precondition(
                    f"'{found.name}' is {NodeState(found.state).name}: it has no running VM"
                )
            self._lifecycle.queued_resources.preempt(found, node_state)
        return {}

    def reboot(self, node: str) -> dict[str, Any]:
        """Plans a hard reboot of all workers of a node."""
        with self._store.transaction():
            found = self._find_node(node)
            if found.state != NodeState.READY:
                raise failed_precondition(f"'{found.name}' is {NodeState(found.state).name}")
            self._lifecycle.nodes.reboot(found)
        return {}

    def fail_next(self, method: str, code: str, message: str, count: int) -> dict[str, Any]:
        """Arms an error."""
        self._check_fault(method, count)
        name = code_named(code).name
        text = message or f"{name} injected by the admin service"
        self._faults.arm(kinds.FAIL, method, count, code=name, message=text)
        return {}

    def stockout(self, zone: str, shape: str, count: int) -> dict[str, Any]:
        """Arms a stockout in a zone, or in all."""
        _check_choice("shape", shape, _SHAPES)
        _check_choice("zone", zone, (*ZONES, kinds.ANY))
        _check_count(count)
        self._faults.arm(kinds.STOCKOUT, zone, count, shape=shape)
        return {}

    def delay_next(
        self, method: str, seconds: float, commit_late: bool, count: int
    ) -> dict[str, Any]:
        """Arms a slow reply or a late commit."""
        self._check_fault(method, count)
        if seconds < 0:
            raise invalid_argument(f"seconds {seconds}: must not be negative")
        self._faults.arm(kinds.DELAY, method, count, seconds=seconds, commit_late=commit_late)
        return {}

    def lose_reply(self, method: str, count: int) -> dict[str, Any]:
        """Arms a lost reply."""
        self._check_fault(method, count)
        self._faults.arm(kinds.LOSE_REPLY, method, count)
        return {}

    def faults(self) -> dict[str, Any]:
        """The armed faults."""
        return {"faults": self._faults.armed()}

    def clear_faults(self) -> dict[str, Any]:
        """Disarms all faults."""
        return {"cleared": self._faults.clear()}

    def _check_fault(self, method: str, count: int) -> None:
        _check_choice("method", method, (*self._methods, kinds.ANY))
        _check_count(count)

    def _find_node(self, name: str) -> Any:
        """A node by full name, or by id when one zone only has it."""
        found = [
            node for node in self._store.nodes.all() if name in (node.name, split(node.name)[1])
        ]
        if not found:
            raise not_found(name)
        if len(found) > 1:
            raise invalid_argument(f"several zones have {name!r}: {[node.name for node in found]}")
        return found[0]

    def _worker(self, worker: WorkerRow, pids: dict[str, list[int]]) -> dict[str, Any]:
        return {
            "worker": worker.number,
            "pids": pids.get(worker.marker, []),
            "directory": str(self._vms.directory(worker.node, worker.number)),
            "metadata_port": worker.port,
            "boots": worker.boots,
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


def _check_count(count: int) -> None:
    if count < 1:
        raise invalid_argument(f"count {count}: must be at least 1")


def _check_choice(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise invalid_argument(f"unknown {what} {value!r}; known: {', '.join(allowed)}")


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
