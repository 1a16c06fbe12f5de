"""The admin commands that affect nodes: now, later, or the next one of a zone."""

from __future__ import annotations

import glob
import time
from typing import Any

from tpu_emulator.errors import failed_precondition, invalid_argument, not_found
from tpu_emulator.fault_commands import (
    Command,
    check_choice,
    check_zone,
    checked_count,
    checked_seconds,
)
from tpu_emulator.faults import (
    ANY,
    PREEMPT_AFTER,
    PREEMPT_WHEN_FILE,
    WORKER,
    WORKER_FAULTS,
    Faults,
    Scope,
)
from tpu_emulator.history import GONE
from tpu_emulator.lifecycle import Lifecycle
from tpu_emulator.messages import NodeState
from tpu_emulator.names import split, zone_of
from tpu_emulator.queue_lifecycle import PREEMPTIBLE
from tpu_emulator.store import Store

OUTCOMES = ("PREEMPTED", "TERMINATED", GONE)
_SINCE = ("CREATING", "READY")
_NOTICES = ("preempted", "maintenance")


class NodeCommands:
    """One method per command, called with the JSON object that the client sent.

    Raises:
        ApiError: NOT_FOUND, FAILED_PRECONDITION or INVALID_ARGUMENT, with the reason.
    """

    def __init__(self, store: Store, lifecycle: Lifecycle, faults: Faults) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._faults = faults

    def commands(self) -> dict[str, Command]:
        """The commands by name."""
        return {
            "Preempt": self.preempt,
            "PreemptAfter": self.preempt_after,
            "PreemptWhenFile": self.preempt_when_file,
            "Notice": self.notice,
            "Reboot": self.reboot,
            "Vanish": self.vanish,
            "ArmWorker": self.arm_worker,
        }

    def preempt(self, *, node: str, node_state: str) -> dict[str, Any]:
        """Starts a preemption; returns before it is over."""
        check_choice("node state", node_state, OUTCOMES)
        with self._store.transaction():
            found = self._find(node, PREEMPTIBLE)
            self._lifecycle.queued_resources.preempt(found, node_state)
        return {}

    def preempt_after(
        self, *, zone: str, seconds: float, since: str, node_state: str, count: int
    ) -> dict[str, Any]:
        """Arms a preemption at a time."""
        check_choice("state to wait for", since, _SINCE)
        check_choice("node state", node_state, OUTCOMES)
        check_zone(zone)
        self._faults.arm(
            PREEMPT_AFTER, Scope(zone=zone), count=checked_count(count),
            wait=checked_seconds(seconds), since=since, node_state=node_state,
        )  # fmt: skip
        return {}

    def preempt_when_file(
        self, *, zone: str, pattern: str, node_state: str, count: int
    ) -> dict[str, Any]:
        """Arms a preemption that comes when a file exists."""
        check_choice("node state", node_state, OUTCOMES)
        check_zone(zone)
        if not pattern.startswith("/"):
            raise invalid_argument(f"pattern {pattern!r}: must be an absolute path")
        self._faults.arm(
            PREEMPT_WHEN_FILE, Scope(zone=zone), count=checked_count(count),
            pattern=pattern, node_state=node_state,
        )  # fmt: skip
        return {}

    def notice(self, *, node: str, kind: str, seconds: float) -> dict[str, Any]:
        """Announces a preemption or maintenance to the VMs, and plans it."""
        check_choice("kind of notice", kind, _NOTICES)
        delay = checked_seconds(seconds)
        with self._store.transaction():
            if kind == "maintenance":
                found = self._find(node, (NodeState.READY,))
                self._lifecycle.nodes.announce_maintenance(found, delay)
            else:
                found = self._find(node, PREEMPTIBLE)
                self._lifecycle.queued_resources.announce_preemption(found, OUTCOMES[0], delay)
        return {}

    def reboot(self, *, node: str) -> dict[str, Any]:
        """Plans a hard reboot of all workers of a node."""
        with self._store.transaction():
            self._lifecycle.nodes.reboot(self._find(node, (NodeState.READY,)))
        return {}

    def vanish(self, *, node: str) -> dict[str, Any]:
        """Plans the removal of every trace of a node or a queued resource."""
        with self._store.transaction():
            found = self._store.queued_resources.get(node) or self._find(node)
            self._lifecycle.queued_resources.vanish(found.name)
        return {}

    def arm_worker(
        self, *, zone: str, worker: int, fault: str, seconds: float, count: int
    ) -> dict[str, Any]:
        """Arms a broken worker."""
        check_choice("fault", fault, WORKER_FAULTS)
        check_zone(zone)
        if worker < 0:
            raise invalid_argument(f"worker {worker}: the first one is 0")
        self._faults.arm(
            WORKER, Scope(zone=zone), count=checked_count(count),
            worker=worker, fault=fault, wait=checked_seconds(seconds),
        )  # fmt: skip
        return {}

    # Handlers of armed preemptions

    def preempt_if_due(self, fault: dict[str, Any]) -> None:
        """Preempts the first node that reached the state long enough ago."""
        details = fault["details"]
        for node in self.nodes_in(fault["zone"]):
            reached = self._store.history.reached(node.name, node.id, details["since"])
            if reached is None:
                continue
            if time.time() >= max(reached, fault["armed"]) + details["wait"]:
                return self._strike(fault, node)

    def preempt_if_file(self, fault: dict[str, Any]) -> None:
        """Preempts the oldest node when the file exists."""
        nodes = self.nodes_in(fault["zone"])
        if nodes and glob.glob(fault["details"]["pattern"], recursive=True):
            self._strike(fault, nodes[0])

    def nodes_in(self, zone: str) -> list[Any]:
        """The nodes of a zone (or `*`) that can be preempted, the oldest first."""
        # A node that is being removed keeps its state until its processes are gone.
        leaving = {
            name
            for transition in self._store.transitions()
            for name in transition.arguments.get("nodes", ())
        }
        return sorted(
            (
                node
                for node in self._store.nodes.all()
                if node.state in PREEMPTIBLE
                and node.name not in leaving
                and zone in (ANY, zone_of(node.name))
            ),
            key=lambda node: int(node.id),
        )

    def _strike(self, fault: dict[str, Any], node: Any) -> None:
        with self._store.transaction():
            self.preempt(node=node.name, node_state=fault["details"]["node_state"])
            self._faults.use_up(fault)

    def _find(self, name: str, states: tuple[NodeState, ...] = ()) -> Any:
        """A node by full name, or by id when only one zone has it."""
        found = [
            node for node in self._store.nodes.all() if name in (node.name, split(node.name)[1])
        ]
        if not found:
            raise not_found(name)
        if len(found) > 1:
            raise invalid_argument(f"several zones have {name!r}: {[node.name for node in found]}")
        [node] = found
        if states and node.state not in states:
            raise failed_precondition(
                f"'{node.name}' is {NodeState(node.state).name}: it has no running VM"
            )
        return node
