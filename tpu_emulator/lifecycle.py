"""Runs the transitions of both state machines and brings VMs back after a restart.

Each change begins with a call inside the caller's transaction and continues with transitions that
the scheduler runs. Transitions are idempotent and check the current state first: any decision made
after they were planned takes precedence.
"""

from __future__ import annotations

from collections.abc import Callable

from tpu_emulator.config import EmulatorConfig
from tpu_emulator.faults import Faults
from tpu_emulator.messages import NodeState
from tpu_emulator.node_lifecycle import NodeLifecycle
from tpu_emulator.queue_lifecycle import QueueLifecycle
from tpu_emulator.scheduler import Clock
from tpu_emulator.store import Store, Transition
from tpu_emulator.vm import Vms


class Lifecycle:
    """The state machines of nodes and queued resources."""

    def __init__(
        self, store: Store, vms: Vms, config: EmulatorConfig, faults: Faults, clock: Clock
    ) -> None:
        self._store = store
        self._vms = vms
        self.nodes = NodeLifecycle(store, vms, config, faults, clock)
        self.queued_resources = QueueLifecycle(store, vms, config, faults, clock)
        self._actions: dict[str, Callable[..., None]] = {
            "abandon": self.nodes.run_abandon,
            "boot": self.nodes.run_boot,
            "break_worker": self.nodes.run_break_worker,
            "delete_node": self.nodes.run_delete_node,
            "fail_operation": self.nodes.run_fail_operation,
            "maintain": self.nodes.run_maintain,
            "reboot": self.nodes.run_reboot,
            "stop": self.nodes.run_stop,
            "admit": self.queued_resources.run_admit,
            "delete_queued_resource": self.queued_resources.run_delete_queued_resource,
            "fail": self.queued_resources.run_fail,
            "preempt": self.queued_resources.run_preempt,
            "provision": self.queued_resources.run_provision,
            "reset": self.queued_resources.run_reset,
            "suspend": self.queued_resources.run_suspend,
            "take_away": self.queued_resources.run_take_away,
            "vanish": self.queued_resources.run_vanish,
        }

    def run(self, transition: Transition) -> None:
        """Runs one planned transition."""
        self._actions[transition.action](transition.target, **transition.arguments)

    def recover(self) -> None:
        """Adopts or reboots the VMs of running nodes after a restart of the emulator."""
        for node in self._store.nodes.all():
            if node.state == NodeState.READY:
                self._vms.recover(node)
