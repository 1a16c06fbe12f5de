"""The state machine of nodes: from the call that starts a change to the transition that ends it."""

from __future__ import annotations

from typing import Any

from tpu_emulator.errors import stockout
from tpu_emulator.messages import NodeHealth, NodeState, QueueState, StateInitiator
from tpu_emulator.names import split
from tpu_emulator.states import StateMachine

_ON_THE_WAY = (NodeState.CREATING, NodeState.STARTING)


class NodeLifecycle(StateMachine):
    """`CREATING -> READY -> (STOPPING -> STOPPED -> STARTING -> READY) -> DELETING -> gone`.

    The first group of methods runs inside the caller's transaction and returns an operation;
    the second group are transitions.
    """

    def create(self, spec: Any, name: str, shortage: str | None) -> Any:
        """Starts a node without a queue; with a shortage its operation ends in a stockout."""
        self._new_node(spec, name)
        operation = self._operations.start("create", name)
        action = "abandon" if shortage else "boot"
        self._plan(action, name, self._config.boot_delay, operation=operation.name)
        return operation

    def delete(self, node: Any) -> Any:
        """Starts deleting the node; the last node of a queued resource suspends that."""
        self._set_node_state(node, NodeState.DELETING)
        queued = self._queued(node.queued_resource, QueueState.PROVISIONING, QueueState.ACTIVE)
        if queued and all(other.state == NodeState.DELETING for other in self._nodes_of(queued)):
            self._set_queue_state(queued, QueueState.SUSPENDING, StateInitiator.USER)
        return self._begin("delete", node.name, "delete_node", self._config.delete_delay)

    def stop(self, node: Any) -> Any:
        """Starts shutting the VM down; its folder stays."""
        self._set_node_state(node, NodeState.STOPPING)
        return self._begin("stop", node.name, "stop", self._config.delete_delay)

    def start(self, node: Any) -> Any:
        """Starts booting a stopped node in its folder."""
        self._set_node_state(node, NodeState.STARTING)
        return self._begin("start", node.name, "boot", self._config.boot_delay)

    def update(self, node: Any) -> Any:
        """Stores a changed node; the operation is done at once."""
        self._store.nodes.update(node)
        operation = self._operations.start("update", node.name)
        self._operations.finish(operation.name, node)
        return self._store.operations.get(operation.name)

    def reboot(self, node: Any) -> None:
        """Plans a hard reboot: every process dies and the startup scripts run again."""
        self._plan("reboot", node.name, 0.0)

    # Transitions

    def run_boot(self, name: str, operation: str) -> None:
        """CREATING or STARTING to READY, and the queued resource to ACTIVE with its last node."""
        node = self._node(name, *_ON_THE_WAY)
        if node is None:
            return self._give_up(operation)
        self._vms.boot(node)
        with self._store.transaction():
            node = self._node(name, *_ON_THE_WAY)
            if node is None:  # deleted or preempted while it booted; that plan ends the VM
                return self._give_up(operation)
            node.health = NodeHealth.HEALTHY
            self._set_node_state(node, NodeState.READY)
            queued = self._queued(node.queued_resource, QueueState.PROVISIONING)
            if queued is None:
                self._operations.finish(operation, node)
            elif all(other.state == NodeState.READY for other in self._nodes_of(queued)):
                self._set_queue_state(queued, QueueState.ACTIVE)
                self._operations.finish(operation, queued)

    def run_abandon(self, name: str, operation: str) -> None:
        """A create that finds no capacity: the node vanishes and the operation fails."""
        with self._store.transaction():
            if self._node(name, NodeState.CREATING) is None:
                return self._give_up(operation)
            self._store.nodes.remove(name)
            self._operations.finish(operation, error=stockout(split(name)[0].zone))

    def run_reboot(self, name: str) -> None:
        """Every process dies and the startup scripts run again in their folders."""
        node = self._node(name, NodeState.READY)
        if node is not None:
            self._vms.boot(node)

    def run_stop(self, name: str, operation: str) -> None:
        """STOPPING to STOPPED."""
        self._vms.shut_down([name])
        with self._store.transaction():
            node = self._node(name, NodeState.STOPPING)
            if node is None:
                return self._give_up(operation)
            self._set_node_state(node, NodeState.STOPPED)
            self._operations.finish(operation, node)

    def run_delete_node(self, name: str, operation: str) -> None:
        """DELETING to gone."""
        node = self._store.nodes.get(name)
        self._take_nodes_away([name])
        with self._store.transaction():
            self._operations.finish(operation)
            queued = node and self._queued(node.queued_resource, QueueState.SUSPENDING)
            if queued and not self._nodes_of(queued):
                self._plan("suspend", queued.name, self._config.suspend_delay, initiator="USER")
            if node and not node.queued_resource:
                self._forget(name, [name])

    def _begin(self, verb: str, name: str, action: str, delay: float) -> Any:
        operation = self._operations.start(verb, name)
        self._plan(action, name, delay, operation=operation.name)
        return operation
