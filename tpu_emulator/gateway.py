"""Handles every API call: records it, applies the armed faults, and answers it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format

from tpu_emulator import names
from tpu_emulator.admin_channel import SERVICE as ADMIN_SERVICE
from tpu_emulator.errors import ApiError, permission_denied
from tpu_emulator.faults import DELAY, DENY, DUPLICATE, FAIL, LOSE_REPLY, Faults
from tpu_emulator.store import Call, Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Method:
    """One RPC: its bare name, request class and implementation."""

    name: str
    request: Any
    call: Callable[[Any], Any]


class Gateway(grpc.GenericRpcHandler):
    """The handler of every API call: it is recorded, disturbed by armed faults, and answered."""

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
            caller = _caller(context)
            if method is None:
                call = Call(path.rpartition("/")[2], "", "", caller=caller)
                return self._answer(call, _unimplemented, context)
            request = method.request.FromString(payload)
            name = _resource_name(request)
            call = Call(
                method.name,
                name,
                _recorded(method.name, request),
                zone=names.zone_of(name),
                caller=caller,
            )
            return self._answer(call, lambda: method.call(request), context)

        return grpc.unary_unary_rpc_method_handler(handle)

    def _answer(self, call: Call, run: Callable[[], Any], context: grpc.ServicerContext) -> bytes:
        try:
            response = self._with_faults(call, run)
        except ApiError as error:
            context.abort(error.code, error.message)
        except Exception as error:  # noqa: BLE001 - the caller must see the defect
            _log.exception("%s failed", call.method)
            context.abort(grpc.StatusCode.INTERNAL, f"defect of the emulator: {error!r}")
        return bytes(response.SerializeToString())

    def _with_faults(self, call: Call, run: Callable[[], Any]) -> Any:
        if self._take(DUPLICATE, call) is not None:
            with contextlib.suppress(ApiError):
                self._on_record(call, run)
        return self._on_record(call, lambda: self._disturbed(call, run))

    def _on_record(self, call: Call, run: Callable[[], Any]) -> Any:
        number = self._store.begin_call(call)
        try:
            response = run()
        except ApiError as error:
            self._store.end_call(number, error.code.name, error.message)
            raise
        except Exception as error:
            self._store.end_call(number, "INTERNAL", repr(error))
            raise
        self._store.end_call(number, "OK", "")
        return response

    def _disturbed(self, call: Call, run: Callable[[], Any]) -> Any:
        delay = self._take(DELAY, call)
        if delay and delay["commit_late"]:
            # The client may be gone by then: a call in flight lands all the same.
            self._sleep(delay["wait"])
        if self._take(DENY, call) is not None:
            raise permission_denied(call.method, call.name)
        failure = self._take(FAIL, call)
        if failure:
            raise _error(failure)
        response = run()
        if delay and not delay["commit_late"]:
            self._sleep(delay["wait"])
        if self._take(LOSE_REPLY, call) is not None:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")
        return response

    def _take(self, kind: str, call: Call) -> dict[str, Any] | None:
        return self._faults.take(kind, method=call.method, zone=call.zone, caller=call.caller)

    def _sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "the emulator is stopping")


def _error(failure: dict[str, Any]) -> ApiError:
    """The armed error; several codes take turns."""
    code = failure["codes"][failure["tries"] % len(failure["codes"])]
    return ApiError(
        grpc.StatusCode[code], failure["message"] or f"{code} injected by the admin service"
    )


def _caller(context: grpc.ServicerContext) -> str:
    """The caller's name for itself; client libraries put their user agent into the first header."""
    headers = dict(context.invocation_metadata())
    return str(headers.get("x-goog-api-client") or headers.get("user-agent", ""))


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
    """The request as JSON; empty for reads, which are too many to keep."""
    if method.startswith(("Get", "List")):
        return ""
    return json_format.MessageToJson(request, preserving_proto_field_name=True, indent=None)
