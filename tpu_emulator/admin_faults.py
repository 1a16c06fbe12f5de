"""The part of the admin client that disturbs calls, operations and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpu_emulator.admin_channel import AdminChannel


class CallFaults(AdminChannel):
    """Arms faults.

    In all methods `method` is the name of an RPC such as `CreateNode`, `zone` a zone, `*` means
    every one, and `caller` is a part of the caller's user agent (empty: every caller). A fault
    applies to the next `count` matches.
    """

    def fail_next(
        self,
        method: str,
        *,
        code: str,
        message: str = "",
        count: int = 1,
        zone: str = "*",
        caller: str = "",
    ) -> None:
        """Makes the next calls fail without an effect, with a code such as `UNAVAILABLE`."""
        self._call(
            "FailNext", method=method, code=code, message=message, count=count, zone=zone,
            caller=caller,
        )  # fmt: skip

    def burst(
        self,
        method: str,
        *,
        codes: Sequence[str] = ("UNAVAILABLE", "DEADLINE_EXCEEDED"),
        seconds: float,
        share: float = 1.0,
        seed: int = 0,
        zone: str = "*",
        caller: str = "",
    ) -> None:
        """Makes a share of the calls fail without an effect, for so many seconds from now.

        Args:
            method: RPC name, or `*`.
            codes: gRPC codes that take turns.
            seconds: how long the burst lasts.
            share: probability of each call to fail, more than 0 and at most 1.
            seed: decides which calls.
            zone: zone name, or `*`.
            caller: part of the caller's user agent.
        """
        self._call(
            "Burst", method=method, codes=list(codes), seconds=seconds, share=share, seed=seed,
            zone=zone, caller=caller,
        )  # fmt: skip

    def delay_next(
        self,
        method: str,
        *,
        seconds: float,
        commit_late: bool = False,
        count: int = 1,
        zone: str = "*",
        caller: str = "",
    ) -> None:
        """Makes the next calls slow: the reply comes late, and with `commit_late` the effect too.

        A call with `commit_late` takes effect even when its client has given up meanwhile.
        """
        self._call(
            "DelayNext", method=method, seconds=seconds, commit_late=commit_late, count=count,
            zone=zone, caller=caller,
        )  # fmt: skip

    def lose_reply(self, method: str, *, count: int = 1, zone: str = "*", caller: str = "") -> None:
        """Lets the next calls take effect, but answer UNAVAILABLE."""
        self._call("LoseReply", method=method, count=count, zone=zone, caller=caller)

    def duplicate_next(
        self, method: str, zone: str = "*", *, count: int = 1, caller: str = ""
    ) -> None:
        """Lets the service receive the next calls twice; the client sees the second answer."""
        self._call("DuplicateNext", method=method, count=count, zone=zone, caller=caller)

    def deny(self, method: str = "*", zone: str = "*", *, caller: str = "") -> None:
        """Makes calls answer PERMISSION_DENIED until `allow`."""
        self._call("Deny", method=method, zone=zone, caller=caller)

    def allow(self, method: str = "*", zone: str = "*", *, caller: str = "") -> int:
        """Lifts denials and returns how many.

        Only those armed for this method, zone and caller; `*` and the empty caller mean all.
        """
        return int(self._call("Allow", method=method, zone=zone, caller=caller)["lifted"])

    def stockout(self, zone: str, *, shape: str = "state", count: int = 1) -> None:
        """Lets the next creates find no capacity.

        Args:
            zone: zone name, or `*`.
            shape: `sync` (the call fails), `lro` (its operation fails), `state` (the queued
                resource becomes FAILED), `wait` (it stays in the queue until its deadline). A
                node created without a queue has only `sync` and `lro`; the others act as `lro`.
            count: number of creates.
        """
        self._call("Stockout", zone=zone, shape=shape, count=count)

    def quota(
        self, zone: str, accelerator_family: str, chips: int | None, *, lag: float = 0.0
    ) -> None:
        """Limits the chips of a family, such as `v5litepod`, in a zone; None lifts the limit.

        A create beyond it fails with `RESOURCE_EXHAUSTED`. All nodes of all tiers and all queued
        resources count until they are deleted, and `lag` seconds longer.
        """
        self._call("Quota", zone=zone, accelerator_family=accelerator_family, chips=chips, lag=lag)

    def fail_operation(
        self,
        method: str,
        *,
        code: str = "INTERNAL",
        message: str = "",
        zone: str = "*",
        after_effect: bool = False,
        count: int = 1,
    ) -> None:
        """Makes the operations of the next calls fail.

        Without `after_effect` nothing happens: a deleted resource stays, a created node vanishes,
        a created queued resource is FAILED. With it the effect takes place, and only the operation
        reports a failure.
        """
        self._call(
            "FailOperation", method=method, code=code, message=message, zone=zone,
            after_effect=after_effect, count=count,
        )  # fmt: skip

    def slow_operation(
        self, method: str, *, seconds: float, zone: str = "*", count: int = 1
    ) -> None:
        """Makes the operations of the next calls, and their effects, take so much longer."""
        self._call("SlowOperation", method=method, seconds=seconds, zone=zone, count=count)

    def stick_deleting(self, zone: str, *, seconds: float | None = None, count: int = 1) -> None:
        """Keeps resources deleted by the next calls DELETING for so long; None: until `unstick`.

        Their VMs keep running.
        """
        self._call("StickDeleting", zone=zone, seconds=seconds, count=count)

    def unstick(self, zone: str = "*") -> int:
        """Lets the deletions of a zone end now; returns how many there were."""
        return int(self._call("Unstick", zone=zone)["hastened"])

    def stale_lists(
        self, seconds: float, *, zone: str = "*", duration: float | None = None
    ) -> None:
        """Makes lists show the state of so many seconds ago (at most 600), for `duration` seconds.

        Gets are not affected. Without a duration it stays until `clear_faults`.
        """
        self._call("StaleLists", seconds=seconds, zone=zone, duration=duration)

    def chaos(
        self,
        seed: int,
        zone: str = "*",
        *,
        mean_seconds: float = 5.0,
        kinds: Sequence[str] = (),
        events: int | None = None,
    ) -> None:
        """Disturbs at random, the same way for the same seed, until `clear_faults`.

        Args:
            seed: determines everything; `chaos_plan` shows the events.
            zone: where; `*` for everywhere.
            mean_seconds: mean time between two events.
            kinds: only these, named as the commands of the command line; if empty all that the
                documentation lists, without `restart`.
            events: number of events; None for no end.
        """
        self._call(
            "Chaos", seed=seed, zone=zone, mean_seconds=mean_seconds, kinds=list(kinds),
            events=events,
        )  # fmt: skip

    def chaos_plan(
        self,
        seed: int,
        zone: str = "*",
        *,
        mean_seconds: float = 5.0,
        kinds: Sequence[str] = (),
        events: int = 20,
    ) -> list[dict[str, Any]]:
        """What `chaos` would do: seconds from its start, kind and arguments of its first events."""
        plan = self._call(
            "ChaosPlan", seed=seed, zone=zone, mean_seconds=mean_seconds, kinds=list(kinds),
            events=events,
        )  # fmt: skip
        return list(plan["events"])

    def faults(self) -> list[dict[str, Any]]:
        """The armed faults."""
        return list(self._call("Faults")["faults"])

    def clear_faults(self, zone: str = "") -> int:
        """Disarms every fault, or those armed for one zone, and returns how many there were.

        Deletions that are stuck (in that zone) continue.
        """
        return int(self._call("ClearFaults", zone=zone)["cleared"])
