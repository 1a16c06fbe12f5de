"""The admin client: inspects a running emulator and disturbs it.

python -m tpu_emulator admin --socket .local/tpu/api.sock table
"""

from __future__ import annotations

from typing import Any

from tpu_emulator.admin_faults import CallFaults


class AdminClient(CallFaults):
    """Calls the admin service of the emulator behind a socket.

    Every method raises `grpc.RpcError` when the emulator refuses or does not answer; its
    `details()` say why.
    """

    def table(self) -> dict[str, Any]:
        """Every queued resource and node with state, labels and living VM processes."""
        return self._call("Table")

    def calls(self, method: str = "", *, after: int = 0) -> list[dict[str, Any]]:
        """The recorded API calls, oldest first; `code` is empty while a call is in flight.

        Each has `id`, `received`, `finished` (epoch seconds), `method`, `name`, `zone`, `caller`
        (the client's user agent), `code`, `message`, and for writes `request` (JSON).

        Args:
            method: only this RPC, for example `CreateNode`.
            after: only calls with a greater `id`.
        """
        return self._call("Calls", method=method, after=after)["calls"]

    def history(self, name: str = "") -> list[dict[str, Any]]:
        """The states of a node or queued resource (full name or id), or of all, oldest first.

        Each has `at` (epoch seconds), `name`, `life` (distinguishes nodes of the same name) and
        `state`; the last state of a deleted resource is `GONE`.
        """
        return list(self._call("History", name=name)["changes"])

    def bill(self) -> dict[str, Any]:
        """The cost of every node, including deleted ones.

        `nodes` has one line per node with `node_seconds` (from READY until its VMs were gone),
        `chip_seconds`, `price_per_chip_hour`, `cost`, `running`, type, tier and labels; further
        keys have the sums of the seconds and costs. Prices are the emulator's `--price`.
        """
        return dict(self._call("Bill"))

    def restart(self, *, seconds: float = 0.0) -> None:
        """Crashes the emulator and restarts it after so many seconds; the VMs keep running.

        Calls in flight fail with UNAVAILABLE. All zones are affected.
        """
        self._call("Restart", seconds=seconds)

    # Nodes, each by full name, or by id when only one zone has it

    def preempt(self, node: str, *, node_state: str = "PREEMPTED") -> None:
        """Preempts a node, and with it its whole queued resource, as the service would.

        Args:
            node: full name or id.
            node_state: what is left: `PREEMPTED`, `TERMINATED`, or `GONE` (the node vanishes).
        """
        self._call("Preempt", node=node, node_state=node_state)

    def preempt_after(
        self,
        zone: str,
        seconds: float,
        *,
        since: str = "READY",
        node_state: str = "PREEMPTED",
        count: int = 1,
    ) -> None:
        """Preempts the zone's node, or the next one if it has none.

        Args:
            zone: zone name, or `*`.
            seconds: how long after now, and after the node reached the state `since`.
            since: `READY` or `CREATING`.
            node_state: as `preempt`.
            count: number of nodes, one after the other.
        """
        self._call(
            "PreemptAfter", zone=zone, seconds=seconds, since=since, node_state=node_state,
            count=count,
        )  # fmt: skip

    def preempt_when_file(
        self, zone: str, pattern: str, *, node_state: str = "PREEMPTED", count: int = 1
    ) -> None:
        """Preempts the zone's node, or the next one if it has none, when a file exists.

        The file may be a checkpoint, so that the preemption comes at a chosen step.

        Args:
            zone: zone name, or `*`.
            pattern: absolute path; `*`, `?`, `[...]` and `**` as in `glob`.
            node_state: as `preempt`.
            count: number of nodes, one after the other.
        """
        self._call(
            "PreemptWhenFile", zone=zone, pattern=pattern, node_state=node_state, count=count
        )

    def notice(self, node: str, *, kind: str = "preempted", seconds: float = 30.0) -> None:
        """Announces an event to the VMs through their metadata, and causes it `seconds` later.

        Args:
            node: full name or id.
            kind: `preempted` (the node becomes PREEMPTED), or `maintenance` (it is RESTARTING for
                a while: its VMs are shut down and boot again in their folders).
            seconds: from the notice to the event.
        """
        self._call("Notice", node=node, kind=kind, seconds=seconds)

    def reboot(self, node: str) -> None:
        """Kills every process of the node's VMs and runs the startup scripts again."""
        self._call("Reboot", node=node)

    def vanish(self, node: str) -> None:
        """Kills a node and removes every trace of it and of its queued resource.

        A queued resource without a node can be named in full.
        """
        self._call("Vanish", node=node)

    def arm_worker(
        self, zone: str, worker: int, fault: str, *, seconds: float = 0.0, count: int = 1
    ) -> None:
        """Breaks one worker of a zone's next node that has this worker; the node becomes READY.

        Args:
            zone: zone name, or `*`.
            worker: its number; the first is 0.
            fault: `no-boot` (its script never starts), `fail` (its processes die and do not come
                back), `hang` (its processes are frozen).
            seconds: for `fail` and `hang`: how long after READY.
            count: number of nodes.
        """
        self._call("ArmWorker", zone=zone, worker=worker, fault=fault, seconds=seconds, count=count)
