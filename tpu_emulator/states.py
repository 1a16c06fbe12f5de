"""The common base of both state machines, of nodes and of queued resources."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from tpu_emulator import billing, resources
from tpu_emulator.config import EmulatorConfig
from tpu_emulator.errors import ApiError, api_error, busy
from tpu_emulator.faults import FAIL_OPERATION, NO_BOOT, SLOW_OPERATION, STUCK, WORKER, Faults
from tpu_emulator.messages import NodeState, QueueState, StateInitiator
from tpu_emulator.names import split, zone_of
from tpu_emulator.operations import Operations, metadata_of, method_of
from tpu_emulator.scheduler import Clock
from tpu_emulator.store import Store
from tpu_emulator.vm import Vms

_log = logging.getLogger(__name__)
_FOR_EVER = 100 * 365 * 86400.0
"""Seconds; only the admin service ends it."""


class StateMachine:
    """Reads and writes states, and plans transitions."""

    def __init__(
        self, store: Store, vms: Vms, config: EmulatorConfig, faults: Faults, clock: Clock
    ) -> None:
        self._store = store
        self._vms = vms
        self._config = config
        self._faults = faults
        self._clock = clock
        self._operations = Operations(store, faults, clock)

    def _begin(self, verb: str, target: str, action: str, delay: float, **arguments: Any) -> Any:
        """Starts an operation and plans the transition that ends it; returns the operation."""
        operation = self._operations.start(verb, target)
        self._plan(
            action, target, delay + self._obstacles(verb, target),
            operation=operation.name, **arguments,
        )  # fmt: skip
        return operation

    def _doomed(self, verb: str, target: str, delay: float) -> Any | None:
        """The operation of a call that is to fail without an effect, or None."""
        fault = self._faults.take(
            FAIL_OPERATION, method=method_of(verb, target), zone=zone_of(target)
        )
        if fault is None:
            return None
        return self._begin(
            verb, target, "fail_operation", delay, code=fault["code"], message=fault["message"]
        )

    def _obstacles(self, verb: str, target: str) -> float:
        """The seconds by which armed faults make this operation longer."""
        zone = zone_of(target)
        slow = self._faults.take(SLOW_OPERATION, method=method_of(verb, target), zone=zone)
        stuck = self._faults.take(STUCK, zone=zone) if verb == "delete" else None
        waits = [fault["wait"] for fault in (slow, stuck) if fault]
        return sum(_FOR_EVER if wait is None else wait for wait in waits)

    def run_fail_operation(self, _: str, operation: str, code: str, message: str) -> None:
        """Ends an operation that fails without an effect."""
        self._operations.finish(operation, error=api_error(code, message))

    def _plan(self, action: str, target: str, delay: float, **arguments: Any) -> None:
        """Schedules a transition; those of a queued resource and its nodes never overlap."""
        node = self._store.nodes.get(target)
        serial = (node.queued_resource if node else "") or target
        self._store.schedule(action, target, serial=serial, delay=delay, **arguments)

    def _forget(self, serial: str, names: Iterable[str]) -> None:
        """Drops the planned transitions of resources that are gone, and ends their operations."""
        self._store.drop_transitions(serial)
        names = set(names)
        for operation in self._store.operations.all():
            if not operation.done and metadata_of(operation).target in names:
                self._give_up(operation.name)

    def _give_up(self, operation: str) -> None:
        """Ends the operation of a plan that a later call overtook."""
        pending = self._store.operations.get(operation)
        if pending is None:
            return
        details = metadata_of(pending)
        if details.verb == "delete":
            self._operations.finish(operation)
        else:
            error = busy(details.target, "being deleted or preempted")
            self._operations.finish(operation, error=error)

    def _take_nodes_away(self, node_names: list[str], *, at_once: bool = False) -> None:
        """Ends the VMs, then removes the nodes: a node never disappears before its processes."""
        if at_once:
            self._vms.kill(node_names)
        else:
            self._vms.shut_down(node_names)
        with self._store.transaction():
            for node_name in node_names:
                self._vms.remove(node_name)
                self._store.nodes.remove(node_name)

    def _new_node(self, spec: Any, name: str, queued: Any = None) -> Any:
        node = resources.new_node(
            spec,
            name,
            number=self._store.next_number("node"),
            state=NodeState.CREATING,
            now=self._clock.now(),
            queued=queued,
        )
        billing.open_account(self._store, node, resources.tier(node, queued))
        self._mark_dead_workers(node)
        self._store.nodes.put(str(split(name)[0]), node)
        return node

    def _mark_dead_workers(self, node: Any) -> None:
        """Marks the workers of this node that a fault keeps from ever booting."""
        for fault in self._worker_faults(node, (NO_BOOT,)):
            self._vms.add_dead_worker(node.name, fault["worker"])

    def _worker_faults(self, node: Any, allowed: tuple[str, ...]) -> list[dict[str, Any]]:
        """The details of the armed faults of this node's workers, each used up once."""
        count = len(node.network_endpoints)
        found = [
            fault
            for fault in self._faults.of_kind(WORKER, split(node.name)[0].zone)
            if fault["details"]["fault"] in allowed and fault["details"]["worker"] < count
        ]
        for fault in found:
            self._faults.use_up(fault)
        return [fault["details"] for fault in found]

    def _nodes_of(self, queued: Any) -> list[Any]:
        """The existing nodes of a queued resource."""
        nodes = map(self._store.nodes.get, resources.node_names(queued))
        return [node for node in nodes if node is not None and node.queued_resource == queued.name]

    def _queued(self, name: str, *states: QueueState) -> Any | None:
        """The queued resource if it exists and is in one of the states."""
        queued = self._store.queued_resources.get(name)
        return queued if queued is not None and queued.state.state in states else None

    def _node(self, name: str, *states: NodeState) -> Any | None:
        """The node if it exists and is in one of the states."""
        node = self._store.nodes.get(name)
        return node if node is not None and node.state in states else None

    def _set_queue_state(
        self,
        queued: Any,
        state: QueueState,
        initiator: StateInitiator = StateInitiator.STATE_INITIATOR_UNSPECIFIED,
        error: ApiError | None = None,
    ) -> None:
        resources.set_queue_state(queued, state, initiator=initiator, error=error)
        self._store.queued_resources.update(queued)
        _log.info("%s is %s", queued.name, state.name)

    def _set_node_state(self, node: Any, state: NodeState) -> None:
        node.state = state
        self._store.nodes.update(node)
        _log.info("%s is %s", node.name, state.name)
