"""The admin client: looks into a running emulator and disturbs it.

python -m tpu_emulator admin --socket .local/tpu/api.sock table
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

SERVICE = "tpu_emulator.Admin"


class AdminClient:
    """Calls the admin service of the emulator behind a socket.

    Every method raises `grpc.RpcError` when the emulator refuses or is not there; its
    `details()` say why.
    """

    def __init__(self, socket: Path | str, *, timeout: float = 30.0) -> None:
        """Connects lazily to `socket` (the path of the API socket); `timeout` is per call."""
        self._channel = grpc.insecure_channel(
            f"unix:{Path(socket).absolute()}",
            options=[("grpc.max_receive_message_length", -1)],  # the record of calls is long
        )
        self._timeout = timeout

    def table(self) -> dict[str, Any]:
        """Every queued resource and node with state, labels and living VM processes."""
        return self._call("Table")

    def calls(self, method: str = "", *, after: int = 0) -> list[dict[str, Any]]:
        """The recorded API calls, oldest first; `code` is empty while a call is in flight.

        Args:
            method: only this RPC, for example `CreateNode`.
            after: only calls with a greater `id`.
        """
        return self._call("Calls", method=method, after=after)["calls"]

    def preempt(self, node: str, *, node_state: str = "PREEMPTED") -> None:
        """Takes a node, and with it its whole queued resource, away as the service would.

        Args:
            node: full name, or the node id when only one zone has it.
            node_state: what is left: `PREEMPTED`, `TERMINATED`, or `GONE` (the node vanishes).
        """
        self._call("Preempt", node=node, node_state=node_state)

    def reboot(self, node: str) -> None:
        """Kills every process of the node's VMs and runs the startup scripts again."""
        self._call("Reboot", node=node)

    def fail_next(self, method: str, *, code: str, message: str = "", count: int = 1) -> None:
        """Makes the next calls of `method` (or `*`) fail with a code such as `UNAVAILABLE`."""
        self._call("FailNext", method=method, code=code, message=message, count=count)

    def stockout(self, zone: str, *, shape: str = "state", count: int = 1) -> None:
        """Lets the next creates in `zone` (or `*`) find no capacity.

        Args:
            zone: zone name.
            shape: `sync` (the call fails), `lro` (its operation fails), `state` (the queued
                resource becomes FAILED), `wait` (it stays in the queue until its deadline). A
                node created without a queue has only `sync` and `lro`; the others act as `lro`.
            count: number of creates.
        """
        self._call("Stockout", zone=zone, shape=shape, count=count)

    def delay_next(
        self, method: str, *, seconds: float, commit_late: bool = False, count: int = 1
    ) -> None:
        """Makes the next calls slow: the reply comes late, and with `commit_late` the effect too.

        A call with `commit_late` takes effect even when its client has given up meanwhile.
        """
        self._call(
            "DelayNext", method=method, seconds=seconds, commit_late=commit_late, count=count
        )

    def lose_reply(self, method: str, *, count: int = 1) -> None:
        """Lets the next calls take effect, but answer UNAVAILABLE."""
        self._call("LoseReply", method=method, count=count)

    def faults(self) -> list[dict[str, Any]]:
        """The armed faults."""
        return self._call("Faults")["faults"]

    def clear_faults(self) -> int:
        """Disarms every fault and returns how many there were."""
        return int(self._call("ClearFaults")["cleared"])

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, command: str, **arguments: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{command}", lambda value: json.dumps(value).encode(), json.loads
        )
        return call(arguments, timeout=self._timeout, wait_for_ready=True)
