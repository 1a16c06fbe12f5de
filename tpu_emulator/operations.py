"""Long-running operations: created with a call, finished by a transition."""

from __future__ import annotations

import uuid
from typing import Any

import grpc

from tpu_emulator.errors import ApiError
from tpu_emulator.faults import FAIL_AFTER_EFFECT, Faults
from tpu_emulator.messages import Empty, Operation, OperationMetadata, packed, timestamp
from tpu_emulator.names import Location, split
from tpu_emulator.scheduler import Clock
from tpu_emulator.store import Store


class Operations:
    """Starts and finishes the operations kept in the store."""

    def __init__(self, store: Store, faults: Faults, clock: Clock) -> None:
        self._store = store
        self._faults = faults
        self._clock = clock

    def start(self, verb: str, target: str) -> Any:
        """A new unfinished operation of `verb` (create, delete, ...) on the resource."""
        location, _ = split(target)
        error = self._faults.take(
            FAIL_AFTER_EFFECT, method=method_of(verb, target), zone=location.zone
        )
        operation = Operation(name=location.child("operations", f"operation-{uuid.uuid4()}"))
        self._put(
            location,
            operation,
            OperationMetadata(
                create_time=timestamp(self._clock.now()), target=target, verb=verb, api_version="v2"
            ),
        )
        if error is not None:
            self._store.query(
                "INSERT INTO operation_errors VALUES (?, ?, ?)",
                operation.name, error["code"], error["message"],
            )  # fmt: skip
        return operation

    def finish(self, name: str, response: Any = None, error: ApiError | None = None) -> None:
        """Ends the operation with a result or an error; the first end counts."""
        operation = self._store.operations.get(name)
        if operation is None or operation.done:
            return
        error = self._planned_error(name) or error
        operation.done = True
        if error is not None:
            operation.error.code = error.number
            operation.error.message = error.message
        else:
            operation.response.Pack(Empty() if response is None else response)
        details = metadata_of(operation)
        details.end_time.CopyFrom(timestamp(self._clock.now()))
        self._put(split(name)[0], operation, details)

    def request_cancel(self, name: str) -> None:
        """Records a request to cancel; the operation continues (canceling is best effort)."""
        operation = self._store.operations.get(name)
        if operation is not None and not operation.done:
            details = metadata_of(operation)
            details.cancel_requested = True
            self._put(split(name)[0], operation, details)

    def _planned_error(self, name: str) -> ApiError | None:
        rows = self._store.query("SELECT * FROM operation_errors WHERE operation = ?", name)
        return ApiError(grpc.StatusCode[rows[0]["code"]], rows[0]["message"]) if rows else None

    def _put(self, location: Location, operation: Any, details: Any) -> None:
        operation.metadata.CopyFrom(packed(details))
        self._store.operations.put(str(location), operation)


def method_of(verb: str, target: str) -> str:
    """The RPC that starts an operation, for example `DeleteNode`."""
    kind = "Node" if "/nodes/" in target else "QueuedResource"
    return f"{verb.capitalize()}{kind}"


def metadata_of(operation: Any) -> Any:
    """The `OperationMetadata` packed into an operation."""
    details = OperationMetadata()
    operation.metadata.Unpack(details)
    return details
