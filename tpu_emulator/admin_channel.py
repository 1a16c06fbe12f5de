"""The connection of an admin client to an emulator: JSON over gRPC on the socket of the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import grpc

SERVICE = "tpu_emulator.Admin"


class AdminChannel:
    """Calls commands of the admin service.

    Every call raises `grpc.RpcError` when the emulator refuses or does not answer; its `details()`
    say why.
    """

    def __init__(self, socket: Path | str, *, timeout: float = 30.0) -> None:
        """Connects lazily to `socket` (the path of the API socket); `timeout` is per call."""
        self._channel = grpc.insecure_channel(
            f"unix:{Path(socket).absolute()}",
            options=[("grpc.max_receive_message_length", -1)],  # the record of calls is long
        )
        self._timeout = timeout

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, command: str, **arguments: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{command}", lambda value: json.dumps(value).encode(), json.loads
        )
        return call(arguments, timeout=self._timeout, wait_for_ready=True)
