"""The admin commands that arm faults for calls, operations and lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tpu_emulator import faults as kinds
from tpu_emulator.catalog import ACCELERATOR_TYPES, ZONES
from tpu_emulator.errors import code_named, invalid_argument
from tpu_emulator.faults import ANY, Faults, Scope
from tpu_emulator.history import MAX_LAG_SECONDS
from tpu_emulator.store import Store

Command = Callable[..., dict[str, Any]]
OPERATION_METHODS = (
    "CreateQueuedResource", "DeleteQueuedResource", "ResetQueuedResource",
    "CreateNode", "DeleteNode", "StopNode", "StartNode",
)  # fmt: skip
"""Methods whose operations can be made slow or fail."""
_DELETIONS = ("delete_node", "delete_queued_resource")
_SHAPES = ("sync", "lro", "state", "wait")


def _plain(family: str) -> str:
    return family.lower().replace("_", "")


_FAMILIES = {
    _plain(accelerator.family.name): accelerator.family.name
    for accelerator in ACCELERATOR_TYPES.values()
}


class FaultCommands:
    """One method per command, called with the JSON object that the client sent.

    Raises:
        ApiError: INVALID_ARGUMENT for an invalid method, zone, code or number.
    """

    def __init__(self, store: Store, faults: Faults, methods: Collection[str]) -> None:
        """Takes the names of the API methods that faults may name in `methods`."""
        self._store = store
        self._faults = faults
        self._methods = sorted(methods)

    def commands(self) -> dict[str, Command]:
        """The commands by name."""
        return {
            "FailNext": self.fail_next,
            "Burst": self.burst,
            "DelayNext": self.delay_next,
            "LoseReply": self.lose_reply,
            "DuplicateNext": self.duplicate_next,
            "Deny": self.deny,
            "Allow": self.allow,
            "Stockout": self.stockout,
            "Quota": self.quota,
            "FailOperation": self.fail_operation,
            "SlowOperation": self.slow_operation,
            "StickDeleting": self.stick_deleting,
            "Unstick": self.unstick,
            "StaleLists": self.stale_lists,
            "Faults": self.faults,
            "ClearFaults": self.clear_faults,
        }

    def fail_next(
        self, *, method: str, code: str, message: str, count: int, zone: str, caller: str
    ) -> dict[str, Any]:
        """Arms an error."""
        scope = self._scope(method, zone, caller)
        codes = [code_named(code).name]
        self._faults.arm(
            kinds.FAIL, scope, count=checked_count(count), codes=codes, message=message
        )
        return {}

    def burst(
        self,
        *,
        method: str,
        codes: Sequence[str],
        seconds: float,
        share: float,
        seed: int,
        zone: str,
        caller: str,
    ) -> dict[str, Any]:
        """Arms errors for a time."""
        scope = self._scope(method, zone, caller)
        names = [code_named(code).name for code in codes]
        if not names:
            raise invalid_argument("codes: at least one is needed")
        if not 0 < share <= 1:
            raise invalid_argument(f"share {share}: must be more than 0 and at most 1")
        self._faults.arm(
            kinds.FAIL, scope, count=None, seconds=checked_seconds(seconds), share=share,
            codes=names, message="", seed=seed,
        )  # fmt: skip
        return {}

    def delay_next(
        self, *, method: str, seconds: float, commit_late: bool, count: int, zone: str, caller: str
    ) -> dict[str, Any]:
        """Arms a slow reply or a late commit."""
        details = {"wait": checked_seconds(seconds), "commit_late": commit_late}
        scope = self._scope(method, zone, caller)
        self._faults.arm(kinds.DELAY, scope, count=checked_count(count), **details)
        return {}

    def lose_reply(self, *, method: str, count: int, zone: str, caller: str) -> dict[str, Any]:
        """Arms a lost reply."""
        scope = self._scope(method, zone, caller)
        self._faults.arm(kinds.LOSE_REPLY, scope, count=checked_count(count))
        return {}

    def duplicate_next(self, *, method: str, count: int, zone: str, caller: str) -> dict[str, Any]:
        """Arms a call that arrives twice."""
        scope = self._scope(method, zone, caller)
        self._faults.arm(kinds.DUPLICATE, scope, count=checked_count(count))
        return {}

    def deny(self, *, method: str, zone: str, caller: str) -> dict[str, Any]:
        """Denies calls until they are allowed."""
        self._faults.arm(kinds.DENY, self._scope(method, zone, caller), count=None)
        return {}

    def allow(self, *, method: str, zone: str, caller: str) -> dict[str, Any]:
        """Lifts denials."""
        return {"lifted": self._faults.disarm(kinds.DENY, self._scope(method, zone, caller))}

    def stockout(self, *, zone: str, shape: str, count: int) -> dict[str, Any]:
        """Arms a stockout in a zone, or in all."""
        check_choice("shape", shape, _SHAPES)
        self._faults.arm(
            kinds.STOCKOUT, self._scope(ANY, zone), count=checked_count(count), shape=shape
        )
        return {}

    def quota(
        self, *, zone: str, accelerator_family: str, chips: int | None, lag: float
    ) -> dict[str, Any]:
        """Sets or lifts the limit of chips of a family in a zone."""
        family = _FAMILIES.get(_plain(accelerator_family), accelerator_family)
        check_choice("accelerator family", family, _FAMILIES.values())
        check_zone(zone)
        if chips is not None and chips < 0:
            raise invalid_argument(f"chips {chips}: must not be negative")
        checked_lag(lag)
        for fault in self._faults.of_kind(kinds.QUOTA):
            if (fault["zone"], fault["details"]["family"]) == (zone, family):
                self._faults.remove(fault)
        if chips is not None:
            self._faults.arm(
                kinds.QUOTA, Scope(zone=zone), count=None, family=family, chips=chips, lag=lag
            )
        return {}

    def fail_operation(
        self, *, method: str, code: str, message: str, zone: str, after_effect: bool, count: int
    ) -> dict[str, Any]:
        """Arms an operation that fails."""
        check_choice("method with an operation", method, (*OPERATION_METHODS, ANY))
        check_zone(zone)
        name = code_named(code).name
        self._faults.arm(
            kinds.FAIL_AFTER_EFFECT if after_effect else kinds.FAIL_OPERATION,
            Scope(method, zone),
            count=checked_count(count),
            code=name,
            message=message or f"{name} injected by the admin service",
        )
        return {}

    def slow_operation(
        self, *, method: str, seconds: float, zone: str, count: int
    ) -> dict[str, Any]:
        """Arms an operation that takes longer."""
        check_choice("method with an operation", method, (*OPERATION_METHODS, ANY))
        check_zone(zone)
        self._faults.arm(
            kinds.SLOW_OPERATION, Scope(method, zone), count=checked_count(count),
            wait=checked_seconds(seconds),
        )  # fmt: skip
        return {}

    def stick_deleting(self, *, zone: str, seconds: float | None, count: int) -> dict[str, Any]:
        """Arms a deletion that does not end."""
        wait = None if seconds is None else checked_seconds(seconds)
        self._faults.arm(kinds.STUCK, self._scope(ANY, zone), count=checked_count(count), wait=wait)
        return {}

    def unstick(self, *, zone: str) -> dict[str, Any]:
        """Lets stuck deletions continue, and disarms the faults of future ones."""
        self._faults.disarm(kinds.STUCK, self._scope(ANY, zone))
        return {"hastened": self._hasten_deletions(zone)}

    def stale_lists(self, *, seconds: float, zone: str, duration: float | None) -> dict[str, Any]:
        """Makes lists show the past."""
        scope, lag = self._scope(ANY, zone), checked_lag(seconds)
        self._faults.arm(kinds.STALE_LISTS, scope, count=None, seconds=duration, lag=lag)
        return {}

    def faults(self) -> dict[str, Any]:
        """The armed faults."""
        return {"faults": self._faults.armed()}

    def clear_faults(self, zone: str) -> dict[str, Any]:
        """Disarms all faults, or those of a zone."""
        scope = self._scope(ANY, zone or ANY)
        self._hasten_deletions(scope.zone)
        return {"cleared": self._faults.disarm(scope=scope)}

    def _hasten_deletions(self, zone: str) -> int:
        part = "/" if zone == ANY else f"/locations/{zone}/"
        return self._store.hasten_transitions(_DELETIONS, part)

    def _scope(self, method: str, zone: str, caller: str = "") -> Scope:
        check_choice("method", method, (*self._methods, ANY))
        check_zone(zone)
        return Scope(method, zone, caller)


def check_zone(zone: str) -> None:
    """Checks that a zone exists, or is `*`."""
    check_choice("zone", zone, (*ZONES, ANY))


def check_choice(what: str, value: str, allowed: Collection[str]) -> None:
    """Checks that a value is one of those allowed."""
    if value not in allowed:
        raise invalid_argument(f"unknown {what} {value!r}; known: {', '.join(allowed)}")


def checked_count(count: int) -> int:
    """Checks and returns the number of times that a fault strikes."""
    if count < 1:
        raise invalid_argument(f"count {count}: must be at least 1")
    return count


def checked_seconds(seconds: float) -> float:
    """Checks and returns a duration."""
    if seconds < 0:
        raise invalid_argument(f"seconds {seconds}: must not be negative")
    return seconds


def checked_lag(seconds: float) -> float:
    """Checks and returns how far to look back, at most `MAX_LAG_SECONDS`."""
    if checked_seconds(seconds) > MAX_LAG_SECONDS:
        raise invalid_argument(f"seconds {seconds}: at most {MAX_LAG_SECONDS}")
    return seconds
