"""Wires store, VMs, state machines and API methods to a gRPC server on a Unix socket."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import json_format

from tpu_emulator import sockets
from tpu_emulator.admin import SERVICE as ADMIN_SERVICE
from tpu_emulator.admin_service import AdminService
from tpu_emulator.config import EmulatorConfig
from tpu_emulator.errors import ApiError
from tpu_emulator.faults import DELAY, FAIL, LOSE_REPLY, Faults
from tpu_emulator.lifecycle import Lifecycle
from tpu_emulator.messages import request_class
from tpu_emulator.mixins import CatalogService, OperationsService
from tpu_emulator.names import Names
from tpu_emulator.scheduler import Scheduler
from tpu_emulator.service import TpuService
from tpu_emulator.store import Call, Store
from tpu_emulator.vm import Vms

_log = logging.getLogger(__name__)
_THREADS = 128
_TPU = "google.cloud.tpu.v2.Tpu"
_OPERATIONS = "google.longrunning.Operations"
_LOCATIONS = "google.cloud.location.Locations"
_TPU_METHODS = (
    "CreateQueuedResource GetQueuedResource ListQueuedResources DeleteQueuedResource "
    "ResetQueuedResource CreateNode GetNode ListNodes DeleteNode StopNode StartNode UpdateNode"
).split()
_CATALOG_METHODS = (
    "ListAcceleratorTypes GetAcceleratorType ListRuntimeVersions GetRuntimeVersion".split()
)


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
        except Exception as error:
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
        if self._faults.take(LOSE_REPLY, method):
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")
        return response

    def _sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "the emulator is stopping")


class Emulator:
    """One emulated cloud: serves from `start` until `stop`."""

    def __init__(self, config: EmulatorConfig) -> None:
        """Takes the socket and the state folder.

        Raises:
            SocketError: the socket or a folder cannot be used, see `sockets`.
        """
        self._config = config
        self._locks = contextlib.ExitStack()
        sockets.prepare(config.socket)
        sockets.private_folder(config.state_dir)
        self._locks.enter_context(sockets.exclusive(config.socket.parent / "emulator.lock"))
        self._locks.enter_context(sockets.exclusive(config.state_dir / "emulator.lock"))
        self._store = Store(config.state_dir / "emulator.sqlite")
        self._vms = Vms(self._store, config)
        self._lifecycle = Lifecycle(self._store, self._vms, config)
        self._scheduler = Scheduler(self._store, self._lifecycle.run)
        faults = Faults(self._store)
        self._gateway = Gateway(self._methods(faults), self._store, faults)
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="rpc"))
        admin = AdminService(self._store, self._lifecycle, self._vms, faults)
        self._server.add_generic_rpc_handlers((admin.handlers(), self._gateway))

    def start(self) -> None:
        """Recovers the VMs of before, then serves."""
        self._lifecycle.recover()
        self._scheduler.start()
        self._server.add_insecure_port(f"unix:{self._config.socket}")
        self._server.start()
        self._config.socket.chmod(0o600)

    def stop(self) -> None:
        """Stops serving and, unless `on_exit` is `keep`, ends every process of every VM."""
        self._gateway.stopping.set()
        self._vms.hurry.set()
        self._server.stop(grace=1.0).wait()
        self._scheduler.stop()
        if self._config.on_exit == "kill":
            self._vms.hurry.clear()
            self._vms.stop_all(self._config.exit_grace)
        self._vms.close()
        self._store.close()
        self._locks.close()

    def _methods(self, faults: Faults) -> dict[str, Method]:
        names = Names(self._config.project)
        tpu = TpuService(self._store, self._lifecycle, faults, self._config)
        catalog = CatalogService(names)
        operations = OperationsService(self._store, names)
        pairs = [(_TPU, tpu, request_class, _TPU_METHODS)]
        pairs += [(_TPU, catalog, request_class, _CATALOG_METHODS)]
        pairs += [
            (_OPERATIONS, operations, _request_of(operations_pb2), [
                "GetOperation", "ListOperations", "CancelOperation", "DeleteOperation"]),
            (_LOCATIONS, catalog, _request_of(locations_pb2), ["GetLocation", "ListLocations"]),
        ]  # fmt: skip
        return {
            f"/{service}/{name}": Method(name, request(name), getattr(target, _snake(name)))
            for service, target, request, method_names in pairs
            for name in method_names
        }


def _request_of(module: Any) -> Callable[[str], Any]:
    return lambda name: getattr(module, f"{name}Request")


def _snake(name: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()


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


def umask() -> None:
    """Makes everything the emulator creates private to its user."""
    os.umask(0o077)
