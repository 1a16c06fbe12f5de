"""The state machines of queued resources and nodes.

Each begins with a call (`create_...`, `delete_...`) inside the caller's transaction and goes on
with transitions that the scheduler runs. Transitions are idempotent and look at the current
state first: whatever was decided after they were planned wins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import grpc

from tpu_emulator import resources
from tpu_emulator.config import EmulatorConfig
from tpu_emulator.errors import ApiError, busy, stockout
from tpu_emulator.messages import NodeHealth, NodeState, QueueState, StateInitiator, timestamp
from tpu_emulator.names import split
from tpu_emulator.operations import Operations, metadata_of
from tpu_emulator.store import Store, Transition
from tpu_emulator.vm import Vms

_log = logging.getLogger(__name__)

GONE = "GONE"
"""The outcome of a preemption in which the node vanishes."""


class Lifecycle:
    """Moves queued resources and nodes from state to state."""

    def __init__(self, store: Store, vms: Vms, config: EmulatorConfig) -> None:
        self._store = store
        self._vms = vms
        self._config = config
        self._operations = Operations(store)
        self._actions: dict[str, Callable[..., None]] = {
            "admit": self._admit,
            "provision": self._provision,
            "fail": self._fail,
            "boot": self._boot,
            "abandon": self._abandon,
            "stop": self._stop,
            "delete_node": self._delete_node,
            "delete_queued_resource": self._delete_queued_resource,
            "reset": self._reset,
            "preempt": self._preempt,
            "suspend": self._suspend,
            "reboot": self._reboot,
        }

    def run(self, transition: Transition) -> None:
        """Runs one planned transition."""
        self._actions[transition.action](transition.target, **transition.arguments)

    def recover(self) -> None:
        """Brings the VMs of running nodes back after a restart of the emulator."""
        for node in self._store.nodes.all():
            if node.state == NodeState.READY:
                self._vms.recover(node)

    # Queued resources

    def create_queued_resource(self, queued: Any, shortage: str | None) -> Any:
        """Queues the request and returns the create operation.

        Args:
            queued: validated, with its name.
            shortage: shape of a planned stockout (`lro`, `state`, `wait`) or None.
        """
        location, _ = split(queued.name)
        queued.create_time.CopyFrom(timestamp(time.time()))
        resources.set_queue_state(queued, QueueState.CREATING)
        self._store.queued_resources.put(str(location), queued)
        operation = self._operations.start("create", queued.name)
        self._plan(
            "admit", queued.name, self._config.accept_delay,
            operation=operation.name, shortage=shortage,
        )  # fmt: skip
        return operation

    def delete_queued_resource(self, queued: Any) -> Any:
        """Starts deleting the request and all its nodes; returns the operation."""
        self._set_queue_state(queued, QueueState.DELETING)
        for node in self._nodes_of(queued):
            self._set_node_state(node, NodeState.DELETING)
        operation = self._operations.start("delete", queued.name)
        self._plan(
            "delete_queued_resource", queued.name, self._config.delete_delay,
            operation=operation.name,
        )  # fmt: skip
        return operation

    def reset_queued_resource(self, queued: Any) -> Any:
        """Starts taking the nodes away and queueing the request again; returns the operation."""
        self._set_queue_state(queued, QueueState.SUSPENDING, StateInitiator.USER)
        for node in self._nodes_of(queued):
            self._set_node_state(node, NodeState.DELETING)
        operation = self._operations.start("reset", queued.name)
        self._plan("reset", queued.name, self._config.delete_delay, operation=operation.name)
        return operation

    # Nodes

    def create_node(self, spec: Any, name: str, shortage: str | None) -> Any:
        """Starts a node of its own, without a queue; returns the create operation."""
        node = self._new_node(spec, name)
        operation = self._operations.start("create", name)
        self._plan(
            "abandon" if shortage else "boot", node.name, self._config.boot_delay,
            operation=operation.name,
        )  # fmt: skip
        return operation

    def delete_node(self, node: Any) -> Any:
        """Starts deleting the node; the last node of a queued resource suspends it."""
        self._set_node_state(node, NodeState.DELETING)
        queued = self._store.queued_resources.get(node.queued_resource)
        if queued and all(n.state == NodeState.DELETING for n in self._nodes_of(queued)):
            self._set_queue_state(queued, QueueState.SUSPENDING, StateInitiator.USER)
        operation = self._operations.start("delete", node.name)
        self._plan("delete_node", node.name, self._config.delete_delay, operation=operation.name)
        return operation

    def stop_node(self, node: Any) -> Any:
        """Starts shutting the VM down; its folder stays. Returns the operation."""
        self._set_node_state(node, NodeState.STOPPING)
        operation = self._operations.start("stop", node.name)
        self._plan("stop", node.name, self._config.delete_delay, operation=operation.name)
        return operation

    def start_node(self, node: Any) -> Any:
        """Starts booting a stopped node in its folder; returns the operation."""
        self._set_node_state(node, NodeState.STARTING)
        operation = self._operations.start("start", node.name)
        self._plan("boot", node.name, self._config.boot_delay, operation=operation.name)
        return operation

    def update_node(self, node: Any) -> Any:
        """Stores a changed node; the returned operation is done."""
        self._store.nodes.update(node)
        operation = self._operations.start("update", node.name)
        self._operations.finish(operation.name, node)
        return self._store.operations.get(operation.name)

    def preempt(self, node: Any, outcome: str) -> None:
        """Starts taking the node, and all of its queued resource, away from the user.

        Args:
            node: a node that has a VM or is getting one.
            outcome: `PREEMPTED` or `TERMINATED`, the state that is left, or `GONE`.
        """
        queued = self._store.queued_resources.get(node.queued_resource)
        victims = self._nodes_of(queued) if queued else [node]
        if queued:
            self._set_queue_state(queued, QueueState.SUSPENDING, StateInitiator.SERVICE)
        for victim in victims:
            self._vms.set_preempted(victim.name)
            if outcome != GONE:
                self._set_node_state(victim, NodeState[outcome])
        self._plan(
            "preempt", queued.name if queued else node.name, 0.0,
            nodes=[victim.name for victim in victims], outcome=outcome,
        )  # fmt: skip

    def reboot(self, node: Any) -> None:
        """Plans a hard reboot: every process dies and the startup script runs again."""
        self._plan("reboot", node.name, 0.0)

    # Transitions of queued resources

    def _admit(self, name: str, operation: str, shortage: str | None) -> None:
        with self._store.transaction():
            queued = self._queued(name, QueueState.CREATING)
            if queued is None:
                return self._give_up(operation, name)
            if shortage == "lro":
                return self._fail(name, operation, zone_stockout=True)
            self._set_queue_state(queued, QueueState[self._config.queued_state])
            self._finish_at("accepted", operation, queued)
            earliest, latest = resources.start_window(queued)
            delay = max(self._config.provision_delay, earliest - time.time())
            if shortage == "state":
                self._plan("fail", name, delay, operation=operation, zone_stockout=True)
            elif shortage != "wait":
                self._plan("provision", name, delay, operation=operation)
            if latest is not None:
                self._plan("fail", name, latest - time.time(), operation=operation)

    def _provision(self, name: str, operation: str) -> None:
        with self._store.transaction():
            queued = self._queued(name, *resources.QUEUED)
            if queued is None:
                return self._give_up(operation, name)
            self._set_queue_state(queued, QueueState.PROVISIONING)
            self._finish_at("provisioning", operation, queued)
            for node_name, spec in resources.node_names(queued).items():
                self._new_node(spec, node_name, queued)
                self._plan("boot", node_name, self._config.boot_delay, operation=operation)

    def _fail(self, name: str, operation: str, *, zone_stockout: bool = False) -> None:
        with self._store.transaction():
            queued = self._queued(name, QueueState.CREATING, *resources.QUEUED)
            if queued is None:
                return
            error = (
                stockout(split(name)[0].zone)
                if zone_stockout
                else ApiError(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"The queueing policy of '{name}' expired before resources were available",
                )
            )
            resources.set_queue_state(queued, QueueState.FAILED, error=error)
            self._store.queued_resources.update(queued)
            self._operations.finish(operation, error=error)

    def _delete_queued_resource(self, name: str, operation: str) -> None:
        queued = self._store.queued_resources.get(name)
        if queued is not None:
            self._take_nodes_away([node.name for node in self._nodes_of(queued)])
        with self._store.transaction():
            self._store.queued_resources.remove(name)
            self._operations.finish(operation)
            self._drop_plans(name)

    def _reset(self, name: str, operation: str) -> None:
        queued = self._queued(name, QueueState.SUSPENDING)
        if queued is None:
            return self._give_up(operation, name)
        self._take_nodes_away([node.name for node in self._nodes_of(queued)])
        with self._store.transaction():
            self._set_queue_state(queued, QueueState[self._config.queued_state])
            self._operations.finish(operation, queued)
            self._plan("provision", name, self._config.provision_delay, operation="")

    def _preempt(self, name: str, nodes: list[str], outcome: str) -> None:
        self._vms.shut_down(nodes)
        with self._store.transaction():
            for node_name in nodes:
                self._vms.remove(node_name)
                if outcome == GONE:
                    self._store.nodes.remove(node_name)
            if self._queued(name, QueueState.SUSPENDING):
                self._plan("suspend", name, self._config.suspend_delay, initiator="SERVICE")

    def _suspend(self, name: str, initiator: str) -> None:
        with self._store.transaction():
            queued = self._queued(name, QueueState.SUSPENDING)
            if queued is not None:
                self._set_queue_state(queued, QueueState.SUSPENDED, StateInitiator[initiator])

    # Transitions of nodes

    def _boot(self, name: str, operation: str) -> None:
        node = self._store.nodes.get(name)
        if node is None or node.state not in (NodeState.CREATING, NodeState.STARTING):
            return self._give_up(operation, name)
        self._vms.boot(node)
        with self._store.transaction():
            node = self._store.nodes.get(name)
            if node.state not in (NodeState.CREATING, NodeState.STARTING):
                return self._give_up(operation, name)
            node.health = NodeHealth.HEALTHY
            self._set_node_state(node, NodeState.READY)
            queued = self._queued(node.queued_resource, QueueState.PROVISIONING)
            if queued is None:
                self._operations.finish(operation, node)
            elif all(n.state == NodeState.READY for n in self._nodes_of(queued)):
                self._set_queue_state(queued, QueueState.ACTIVE)
                self._operations.finish(operation, queued)

    def _abandon(self, name: str, operation: str) -> None:
        with self._store.transaction():
            node = self._store.nodes.get(name)
            if node is None or node.state != NodeState.CREATING:
                return self._give_up(operation, name)
            self._store.nodes.remove(name)
            self._operations.finish(operation, error=stockout(split(name)[0].zone))

    def _reboot(self, name: str) -> None:
        node = self._store.nodes.get(name)
        if node is not None and node.state == NodeState.READY:
            self._vms.boot(node)

    def _stop(self, name: str, operation: str) -> None:
        self._vms.shut_down([name])
        with self._store.transaction():
            node = self._store.nodes.get(name)
            if node is None or node.state != NodeState.STOPPING:
                return self._give_up(operation, name)
            self._set_node_state(node, NodeState.STOPPED)
            self._operations.finish(operation, node)

    def _delete_node(self, name: str, operation: str) -> None:
        node = self._store.nodes.get(name)
        self._take_nodes_away([name])
        with self._store.transaction():
            self._operations.finish(operation)
            queued = node and self._queued(node.queued_resource, QueueState.SUSPENDING)
            if queued and not self._nodes_of(queued):
                self._plan("suspend", queued.name, self._config.suspend_delay, initiator="USER")
            if node and not node.queued_resource:
                self._drop_plans(name)

    # Helpers

    def _plan(self, action: str, target: str, delay: float, **arguments: Any) -> None:
        """Schedules a transition; a queued resource and its nodes share one series."""
        node = self._store.nodes.get(target)
        serial = (node.queued_resource if node else "") or target
        self._store.schedule(action, target, serial=serial, delay=delay, **arguments)

    def _drop_plans(self, serial: str) -> None:
        """Forgets what was planned for a resource that is gone, and ends the operations."""
        for plan in self._store.transitions():
            if plan.serial == serial:
                self._store.drop_transition(plan.id)
                self._give_up(plan.arguments.get("operation", ""), plan.target)

    def _give_up(self, operation: str, name: str) -> None:
        """Ends the operation of a plan that something later overtook."""
        pending = self._store.operations.get(operation)
        if pending is None:
            return
        if metadata_of(pending).verb == "delete":
            self._operations.finish(operation)
        else:
            self._operations.finish(operation, error=busy(name, "being deleted or preempted"))

    def _finish_at(self, milestone: str, operation: str, queued: Any) -> None:
        if self._config.create_finishes_at == milestone:
            self._operations.finish(operation, queued)

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
        nodes = map(self._store.nodes.get, resources.node_names(queued))
        return [node for node in nodes if node is not None and node.queued_resource == queued.name]

    def _queued(self, name: str, *states: QueueState) -> Any | None:
        """The queued resource if it exists and is in one of the states."""
        queued = self._store.queued_resources.get(name)
        return queued if queued is not None and queued.state.state in states else None

    def _set_queue_state(
        self,
        queued: Any,
        state: QueueState,
        initiator: StateInitiator = StateInitiator.STATE_INITIATOR_UNSPECIFIED,
    ) -> None:
        resources.set_queue_state(queued, state, initiator=initiator)
        self._store.queued_resources.update(queued)
        _log.info("%s is %s", queued.name, state.name)

    def _set_node_state(self, node: Any, state: NodeState) -> None:
        node.state = state
        self._store.nodes.update(node)
        _log.info("%s is %s", node.name, state.name)
