"""The way every API call takes: recorded, disturbed by the armed faults, answered."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format

from tpu_emulator.admin import SERVICE as ADMIN_SERVICE
from tpu_emulator.errors import ApiError
from tpu_emulator.faults import DELAY, FAIL, LOSE_REPLY, Faults
from tpu_emulator.store import Call, Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Method:
    """One RPC: its bare name, request class and implementation."""

    name: str
    request: Any
    call: Callable[[Any], Any]


class Gateway(grpc.GenericRpcHandler):
    """Every API call passes here: it is recorded, meets the armed faults, and is answered."""

    def __init__(self, methods: dict[str, Method], store: Store, faults: Faults) -> None:
        self._methods = methods
        self._store = store
        self._faults = faults
        self.stopping = threading.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of the called path; unknown ones are recorded and UNIMPLEMENTED."""
        path = handler_call_details.method
        if path.startswith(f"/{ADMIN_SERVICE}/"):
            return None
        method = self._methods.get(path)

        def handle(payload: bytes, context: grpc.ServicerContext) -> bytes:
            if method is None:
                return self._answer(Call(path.rpartition("/")[2], "", ""), _unimplemented, context)
            request = method.request.FromString(payload)
            call = Call(method.name, _resource_name(request), _recorded(method.name, request))
            return self._answer(call, lambda: method.call(request), context)

        return grpc.unary_unary_rpc_method_handler(handle)

    def _answer(self, call: Call, run: Callable[[], Any], context: grpc.ServicerContext) -> bytes:
        number = self._store.begin_call(call)
        try:
            response = self._with_faults(call.method, run)
        except ApiError as error:
            self._store.end_call(number, error.code.name, error.message)
            context.abort(error.code, error.message)
        except Exception as error:  # noqa: BLE001 - the caller must see the defect
            _log.exception("%s failed", call.method)
            self._store.end_call(number, "INTERNAL", repr(error))
            context.abort(grpc.StatusCode.INTERNAL, f"defect of the emulator: {error!r}")
        self._store.end_call(number, "OK", "")
        return bytes(response.SerializeToString())

    def _with_faults(self, method: str, run: Callable[[], Any]) -> Any:
        delay = self._faults.take(DELAY, method)
        if delay and delay["commit_late"]:
            # The client may be gone by then: a call in flight lands all the same.
            self._sleep(delay["seconds"])
        failure = self._faults.take(FAIL, method)
        if failure:
            raise ApiError(grpc.StatusCode[failure["code"]], failure["message"])
        response = run()
        if delay and not delay["commit_late"]:
            self._sleep(delay["seconds"])
        if self._faults.take(LOSE_REPLY, method) is not None:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")
        return response

    def _sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "the emulator is stopping")


def _unimplemented() -> Any:
    raise ApiError(grpc.StatusCode.UNIMPLEMENTED, "this emulator does not implement the method")


def _resource_name(request: Any) -> str:
    """The resource that a call is about, also for creates, whose request has no name."""
    fields = type(request).DESCRIPTOR.fields_by_name
    if "name" in fields:
        return str(request.name)
    if "queued_resource_id" in fields:
        return f"{request.parent}/queuedResources/{request.queued_resource_id}"
    if "node_id" in fields:
        return f"{request.parent}/nodes/{request.node_id}"
    return str(request.node.name if "node" in fields else request.parent)


def _recorded(method: str, request: Any) -> str:
    """The request as JSON; reads are too many and too dull to keep."""
    if method.startswith(("Get", "List")):
        return ""
    return json_format.MessageToJson(request, preserving_proto_field_name=True, indent=None)
