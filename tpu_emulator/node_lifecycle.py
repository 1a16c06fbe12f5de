"""The state machine of nodes: from the call that starts a change to the transition that ends it."""

from __future__ import annotations

from typing import Any

from tpu_emulator.errors import Refusal, api_error
from tpu_emulator.faults import FAIL_WORKER, HANG_WORKER
from tpu_emulator.messages import NodeHealth, NodeState, QueueState, StateInitiator
from tpu_emulator.states import StateMachine

_ON_THE_WAY = (NodeState.CREATING, NodeState.STARTING)
_MAINTAINED = (NodeState.READY, NodeState.RESTARTING)


class NodeLifecycle(StateMachine):
    """`CREATING -> READY -> (STOPPING -> STOPPED -> STARTING -> READY) -> DELETING -> gone`.

    The first group of methods runs inside the caller's transaction and returns an operation;
    the second group are transitions.
    """

    def create(self, spec: Any, name: str, refusal: Refusal | None) -> Any:
        """Starts a node without a queue; with a refusal its operation ends in that error."""
        self._new_node(spec, name)
        delay = self._config.boot_delay
        if refusal is None:
            return self._begin("create", name, "boot", delay)
        return self._begin("create", name, "abandon", delay, **refusal.error.as_arguments())

    def delete(self, node: Any) -> Any:
        """Starts deleting the node; without its last node, the queued resource is suspended."""
        doomed = self._doomed("delete", node.name, self._config.delete_delay)
        if doomed is not None:
            return doomed
        self._set_node_state(node, NodeState.DELETING)
        queued = self._queued(node.queued_resource, QueueState.PROVISIONING, QueueState.ACTIVE)
        if queued and all(other.state == NodeState.DELETING for other in self._nodes_of(queued)):
            self._set_queue_state(queued, QueueState.SUSPENDING, StateInitiator.USER)
        return self._begin("delete", node.name, "delete_node", self._config.delete_delay)

    def stop(self, node: Any) -> Any:
        """Starts shutting the VM down; its folder stays."""
        doomed = self._doomed("stop", node.name, self._config.delete_delay)
        if doomed is not None:
            return doomed
        self._set_node_state(node, NodeState.STOPPING)
        return self._begin("stop", node.name, "stop", self._config.delete_delay)

    def start(self, node: Any) -> Any:
        """Starts booting a stopped node in its folder."""
        doomed = self._doomed("start", node.name, self._config.boot_delay)
        if doomed is not None:
            return doomed
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

    def announce_maintenance(self, node: Any, delay: float) -> None:
        """Announces maintenance to the VMs, and restarts them `delay` seconds later."""
        self._vms.set_maintenance(node.name, announced=True)
        self._plan("maintain", node.name, delay)

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
            self._make_ready(node)
            for fault in self._worker_faults(node, (FAIL_WORKER, HANG_WORKER)):
                self._plan(
                    "break_worker", name, fault["wait"],
                    worker=fault["worker"], fault=fault["fault"],
                )  # fmt: skip
            queued = self._queued(node.queued_resource, QueueState.PROVISIONING)
            if queued is None:
                self._operations.finish(operation, node)
            elif all(other.state == NodeState.READY for other in self._nodes_of(queued)):
                self._set_queue_state(queued, QueueState.ACTIVE)
                self._operations.finish(operation, queued)

    def run_break_worker(self, name: str, worker: int, fault: str) -> None:
        """One host dies for good, or hangs; the service does not notice."""
        if self._node(name, NodeState.READY):
            if fault == HANG_WORKER:
                self._vms.freeze_worker(name, worker)
            else:
                self._vms.kill_worker(name, worker)

    def run_maintain(self, name: str) -> None:
        """READY to RESTARTING to READY: the VMs shut down properly and boot in their folders."""
        with self._store.transaction():
            node = self._node(name, *_MAINTAINED)
            if node is None:
                return
            node.health = NodeHealth.UNHEALTHY_MAINTENANCE
            self._set_node_state(node, NodeState.RESTARTING)
        self._vms.shut_down([name])
        self._vms.set_maintenance(name, announced=False)
        self._vms.boot(node)
        with self._store.transaction():
            node = self._node(name, NodeState.RESTARTING)
            if node is not None:
                self._make_ready(node)

    def run_abandon(self, name: str, operation: str, code: str, message: str) -> None:
        """A create that fails: the node vanishes."""
        with self._store.transaction():
            if self._node(name, NodeState.CREATING) is None:
                return self._give_up(operation)
            self._vms.remove(name)
            self._store.nodes.remove(name)
            self._operations.finish(operation, error=api_error(code, message))

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

    def _make_ready(self, node: Any) -> None:
        node.health = NodeHealth.HEALTHY
        self._set_node_state(node, NodeState.READY)
