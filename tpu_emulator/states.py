"""What both state machines, of nodes and of queued resources, are built from."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from tpu_emulator import resources
from tpu_emulator.config import EmulatorConfig
from tpu_emulator.errors import ApiError, busy
from tpu_emulator.messages import NodeState, QueueState, StateInitiator
from tpu_emulator.names import split
from tpu_emulator.operations import Operations, metadata_of
from tpu_emulator.store import Store
from tpu_emulator.vm import Vms

_log = logging.getLogger(__name__)


class StateMachine:
    """Reads and writes states, and plans transitions."""

    def __init__(self, store: Store, vms: Vms, config: EmulatorConfig) -> None:
        self._store = store
        self._vms = vms
        self._config = config
        self._operations = Operations(store)

    def _plan(self, action: str, target: str, delay: float, **arguments: Any) -> None:
        """Schedules a transition; those of a queued resource and its nodes never overlap."""
        node = self._store.nodes.get(target)
        serial = (node.queued_resource if node else "") or target
        self._store.schedule(action, target, serial=serial, delay=delay, **arguments)

    def _forget(self, serial: str, names: Iterable[str]) -> None:
        """Drops what was planned for resources that are gone, and ends their operations."""
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

    def _take_nodes_away(self, node_names: list[str]) -> None:
        """Ends the VMs, then removes the nodes: a node never disappears before its processes."""
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
            queued=queued,
        )
        self._store.nodes.put(str(split(name)[0]), node)
        return node

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
