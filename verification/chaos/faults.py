"""Injects the faults of a schedule, each at its time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import psutil

from tpu_emulator.admin import AdminClient
from verification.chaos.group import Group
from verification.chaos.schedule import ZONES, Fault, Schedule
from verification.chaos.world import World

# On these errors a fault waits until its target exists.
_NOT_YET = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)

STEP_LOOK_SECONDS = 0.1
STALE_SECONDS = 8.0
"""Time for which lists show stale state."""


@dataclass
class Trouble:
    """Injects the faults; called by the group every few milliseconds.

    :param step: returns the training's current step.
    """

    schedule: Schedule
    world: World
    step: Callable[[], int]
    pending: list[Fault] = field(init=False)
    caused: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _next_look: float = 0.0
    _step: int = 0

    def __post_init__(self) -> None:
        self.pending = list(self.schedule.faults)

    def tick(self, group: Group) -> None:
        """Inject the faults that are due. Exceptions that the group raises for them propagate."""
        self._current_step()
        for fault in list(self.pending):
            if not self._is_due(fault, group):
                continue
            self.pending.remove(fault)
            moment = f"{time.monotonic() - self._began:6.1f} s, {group.phase}"
            self.caused.append(f"{moment}: {fault}")
            if not self._cause(fault, group):
                self.caused.pop()
                self.pending.append(fault)

    def _is_due(self, fault: Fault, group: Group) -> bool:
        if fault.phase != group.phase or time.monotonic() - group.phase_began < fault.delay:
            return False
        return fault.step is None or self._current_step() >= fault.step

    def _cause(self, fault: Fault, group: Group) -> bool:
        """Inject a fault; return False if its target does not exist yet."""
        try:
            found = CAUSES[fault.kind](self, group, **fault.details)
        except grpc.RpcError as error:
            if error.code() in (*_NOT_YET, grpc.StatusCode.UNAVAILABLE):
                return False
            raise
        return found is not False

    def _current_step(self) -> int:
        """Return the training's step; while the store fails, the last known one."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + STEP_LOOK_SECONDS
            with contextlib.suppress(OSError):
                self._step = self.step()
        return self._step

    @property
    def admin(self) -> AdminClient:
        """The emulator's admin service."""
        return self.world.emulator.admin

    def node(self) -> str | None:
        """Return the name of an existing node, or None."""
        return next((node["name"] for node in self.world.nodes()), None)


FAMILY = "V5LITE_POD"


def _each_zone(arm: Callable[[str], object]) -> None:
    for zone in ZONES:
        arm(zone)


def _restart_service(trouble: Trouble, group: Group, *, how: str, seconds: float) -> None:
    emulator = trouble.world.emulator
    emulator.kill() if how == "kill" else emulator.stop()
    time.sleep(seconds)
    emulator.start()


def _deny(trouble: Trouble, group: Group, *, method: str, seconds: float) -> None:
    trouble.admin.deny(method)
    group.after(seconds, lambda: trouble.admin.allow(method))


def _quota(trouble: Trouble, group: Group, *, refusals: int, seconds: float, lag: float) -> None:
    """Set a quota of one TPU with delayed accounting, which others use up for some calls."""
    if refusals:
        trouble.admin.fail_next(
            "CreateQueuedResource",
            code="RESOURCE_EXHAUSTED",
            message="Quota limit 'TPUV5sLitepodPerProjectPerZone' has been exceeded. Limit: 1",
            count=refusals,
        )
    _each_zone(lambda zone: trouble.admin.quota(zone, FAMILY, 1, lag=lag))
    group.after(seconds, lambda: _each_zone(lambda zone: trouble.admin.quota(zone, FAMILY, None)))


def _on_node(call: Callable[[AdminClient, str], object]) -> Callable[..., bool]:
    def cause(trouble: Trouble, group: Group) -> bool:
        node = trouble.node()
        if node is None:
            return False
        call(trouble.admin, node)
        return True

    return cause


def _preempt(trouble: Trouble, group: Group, *, node_state: str) -> bool:
    return _on_node(lambda admin, node: admin.preempt(node, node_state=node_state))(trouble, group)


def _notice(trouble: Trouble, group: Group, *, kind: str, seconds: float) -> bool:
    return _on_node(lambda admin, node: admin.notice(node, kind=kind, seconds=seconds))(
        trouble, group
    )


def _kill(module: str) -> Callable[..., bool]:
    def cause(trouble: Trouble, group: Group) -> bool:
        found = trouble.world.vm_processes(module)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return bool(found)

    return cause


def _store_outage(trouble: Trouble, group: Group, *, seconds: float) -> None:
    trouble.world.lose_store()
    group.after(seconds, trouble.world.find_store)


def _burst(trouble: Trouble, group: Group, **details: Any) -> None:
    trouble.admin.burst("*", **details)


CAUSES: dict[str, Callable[..., object]] = {
    "fail_call": lambda t, g, **d: t.admin.fail_next(d.pop("method"), **d),
    "burst": _burst,
    "lose_reply": lambda t, g, method: t.admin.lose_reply(method),
    "delay_call": lambda t, g, **d: t.admin.delay_next(d.pop("method"), **d),
    "duplicate_call": lambda t, g, method: t.admin.duplicate_next(method),
    "stockout": lambda t, g, zone, shape: t.admin.stockout(zone, shape=shape),
    "deny": _deny,
    "fail_operation": lambda t, g, method: t.admin.fail_operation(method),
    "slow_operation": lambda t, g, method, seconds: t.admin.slow_operation(method, seconds=seconds),
    "stick_deleting": lambda t, g, seconds: _each_zone(
        lambda zone: t.admin.stick_deleting(zone, seconds=seconds)
    ),
    "stale_lists": lambda t, g, seconds: t.admin.stale_lists(seconds, duration=STALE_SECONDS),
    "quota": _quota,
    "restart_service": _restart_service,
    "preempt": _preempt,
    "vanish": _on_node(lambda admin, node: admin.vanish(node)),
    "reboot": _on_node(lambda admin, node: admin.reboot(node)),
    "notice": _notice,
    "kill_job": _kill("training."),
    "kill_agent": _kill("tpu_agent"),
    "hang_vm": lambda t, g: t.world.hang_vms(),
    "no_boot": lambda t, g: _each_zone(lambda zone: t.admin.arm_worker(zone, 0, fault="no-boot")),
    "kill_process": lambda t, g: g.kill_process(),
    "orphan_process": lambda t, g: g.orphan_process(),
    "clear_task": lambda t, g, late, kills: g.clear(late=late, kills=kills, from_start=False),
    "clear_group": lambda t, g, late, kills: g.clear(late=late, kills=kills, from_start=True),
    "mark_failed": lambda t, g, late, kills: g.mark_failed(late=late, kills=kills),
    "store_outage": _store_outage,
}
