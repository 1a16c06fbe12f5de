"""The state machine of queued resources: waiting, getting nodes, losing them."""

from __future__ import annotations

from typing import Any

import grpc

from tpu_emulator import resources
from tpu_emulator.errors import ApiError, Refusal, api_error
from tpu_emulator.history import GONE
from tpu_emulator.messages import NodeState, QueueState, StateInitiator, timestamp
from tpu_emulator.names import split
from tpu_emulator.states import StateMachine

PREEMPTIBLE = (NodeState.CREATING, NodeState.STARTING, NodeState.READY, NodeState.RESTARTING)
"""States of a node that has a VM or is getting one."""


class QueueLifecycle(StateMachine):
    """`CREATING -> waiting -> PROVISIONING -> ACTIVE -> SUSPENDING -> SUSPENDED`, or `FAILED`.

    The first group of methods runs inside the caller's transaction; the second group are
    transitions. The names of the waiting state differ, see `EmulatorConfig.queued_state`.
    """

    def create(self, queued: Any, refusal: Refusal | None) -> Any:
        """Queues the request and returns the create operation.

        Args:
            queued: validated, with its name.
            refusal: how it is planned to fail (`lro`, `state` or `wait`), or None.
        """
        queued.create_time.CopyFrom(timestamp(self._clock.now()))
        resources.set_queue_state(queued, QueueState.CREATING)
        self._store.queued_resources.put(str(split(queued.name)[0]), queued)
        return self._begin(
            "create", queued.name, "admit", self._config.accept_delay,
            refusal=refusal and {"shape": refusal.shape} | refusal.error.as_arguments(),
        )  # fmt: skip

    def delete(self, queued: Any) -> Any:
        """Starts deleting the request and all its nodes; returns the operation."""
        doomed = self._doomed("delete", queued.name, self._config.delete_delay)
        if doomed is not None:
            return doomed
        self._set_queue_state(queued, QueueState.DELETING)
        return self._begin_removal("delete", queued, "delete_queued_resource")

    def reset(self, queued: Any) -> Any:
        """Starts taking the nodes away and queueing the request again; returns the operation."""
        doomed = self._doomed("reset", queued.name, self._config.delete_delay)
        if doomed is not None:
            return doomed
        self._set_queue_state(queued, QueueState.SUSPENDING, StateInitiator.USER)
        return self._begin_removal("reset", queued, "reset")

    def preempt(self, node: Any, outcome: str) -> None:
        """Starts preempting the node and all nodes of its queued resource.

        Args:
            node: a node that has a VM or is getting one.
            outcome: `PREEMPTED` or `TERMINATED`, the state that is left, or `GONE` (it vanishes).
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

    def announce_preemption(self, node: Any, outcome: str, delay: float) -> None:
        """Announces a preemption to the VMs, and causes it `delay` seconds later."""
        queued = self._store.queued_resources.get(node.queued_resource)
        for victim in self._nodes_of(queued) if queued else [node]:
            self._vms.set_preempted(victim.name)
        self._plan("take_away", node.name, delay, outcome=outcome)

    def vanish(self, name: str) -> None:
        """Plans the immediate removal of a node or queued resource and all that belongs to it."""
        node = self._store.nodes.get(name)
        self._plan("vanish", (node.queued_resource if node else "") or name, 0.0)

    # Transitions

    def run_admit(self, name: str, operation: str, refusal: dict[str, str] | None) -> None:
        """CREATING to waiting, and plans what follows: nodes, a refusal, the deadline."""
        shape = refusal.pop("shape") if refusal else ""
        with self._store.transaction():
            queued = self._queued(name, QueueState.CREATING)
            if queued is None:
                return self._give_up(operation)
            if refusal and shape == "lro":
                return self.run_fail(name, operation, **refusal)
            self._set_queue_state(queued, QueueState[self._config.queued_state])
            self._finish_at("accepted", operation, queued)
            now = self._clock.now()
            earliest, latest = resources.start_window(queued)
            delay = max(self._config.provision_delay, earliest - now)
            if refusal and shape == "state":
                self._plan("fail", name, delay, operation=operation, **refusal)
            elif shape != "wait":
                self._plan("provision", name, delay, operation=operation)
            if latest is not None:
                self._plan(
                    "fail", name, latest - now, operation=operation, **_expired(name).as_arguments()
                )

    def run_provision(self, name: str, operation: str) -> None:
        """Waiting to PROVISIONING, with its nodes in CREATING."""
        with self._store.transaction():
            queued = self._queued(name, *resources.QUEUED)
            if queued is None:
                return self._give_up(operation)
            self._set_queue_state(queued, QueueState.PROVISIONING)
            self._finish_at("provisioning", operation, queued)
            for node_name, spec in resources.node_names(queued).items():
                self._new_node(spec, node_name, queued)
                self._plan("boot", node_name, self._config.boot_delay, operation=operation)

    def run_fail(self, name: str, operation: str, code: str, message: str) -> None:
        """Waiting to FAILED, for a refusal or because the queueing policy expired."""
        with self._store.transaction():
            queued = self._queued(name, QueueState.CREATING, *resources.QUEUED)
            if queued is None:
                return
            error = api_error(code, message)
            self._set_queue_state(queued, QueueState.FAILED, error=error)
            self._operations.finish(operation, error=error)

    def run_delete_queued_resource(self, name: str, operation: str) -> None:
        """DELETING to gone, the nodes and their processes first."""
        queued = self._store.queued_resources.get(name)
        if queued is not None:
            self._take_nodes_away([node.name for node in self._nodes_of(queued)])
        with self._store.transaction():
            self._store.queued_resources.remove(name)
            self._operations.finish(operation)
            self._forget(name, [name, *(resources.node_names(queued) if queued else ())])

    def run_reset(self, name: str, operation: str) -> None:
        """SUSPENDING to waiting, without the previous nodes."""
        queued = self._queued(name, QueueState.SUSPENDING)
        if queued is None:
            return self._give_up(operation)
        self._take_nodes_away([node.name for node in self._nodes_of(queued)])
        with self._store.transaction():
            self._set_queue_state(queued, QueueState[self._config.queued_state])
            self._operations.finish(operation, queued)
            self._plan("provision", name, self._config.provision_delay, operation=operation)

    def run_preempt(self, name: str, nodes: list[str], outcome: str) -> None:
        """Ends the VMs; their nodes stay as records, or vanish."""
        self._vms.shut_down(nodes)
        with self._store.transaction():
            for node_name in nodes:
                self._vms.remove(node_name)
                if outcome == GONE:
                    self._store.nodes.remove(node_name)
            if self._queued(name, QueueState.SUSPENDING):
                self._plan("suspend", name, self._config.suspend_delay, initiator="SERVICE")

    def run_take_away(self, name: str, outcome: str) -> None:
        """Starts a preemption that was announced."""
        with self._store.transaction():
            node = self._node(name, *PREEMPTIBLE)
            if node is not None:
                self.preempt(node, outcome)

    def run_vanish(self, name: str) -> None:
        """Removes every trace of a queued resource and its nodes, or of a node without one."""
        queued = self._store.queued_resources.get(name)
        nodes = [node.name for node in self._nodes_of(queued)] if queued else [name]
        self._take_nodes_away(nodes, at_once=True)
        with self._store.transaction():
            self._store.queued_resources.remove(name)
            self._forget(name, [name, *nodes])

    def run_suspend(self, name: str, initiator: str) -> None:
        """SUSPENDING to SUSPENDED."""
        with self._store.transaction():
            queued = self._queued(name, QueueState.SUSPENDING)
            if queued is not None:
                self._set_queue_state(queued, QueueState.SUSPENDED, StateInitiator[initiator])

    def _begin_removal(self, verb: str, queued: Any, action: str) -> Any:
        for node in self._nodes_of(queued):
            self._set_node_state(node, NodeState.DELETING)
        return self._begin(verb, queued.name, action, self._config.delete_delay)

    def _finish_at(self, milestone: str, operation: str, queued: Any) -> None:
        if self._config.create_finishes_at == milestone:
            self._operations.finish(operation, queued)


def _expired(name: str) -> ApiError:
    return ApiError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        f"The queueing policy of '{name}' expired before resources were available",
    )
