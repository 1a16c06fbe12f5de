"""Wires store, VMs, state machines and API methods to a gRPC server on a Unix socket."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2

from tpu_emulator import billing, restart, sockets
from tpu_emulator.admin_service import AdminService
from tpu_emulator.chaos import Chaos
from tpu_emulator.config import EmulatorConfig
from tpu_emulator.fault_commands import FaultCommands
from tpu_emulator.faults import CHAOS, PREEMPT_AFTER, PREEMPT_WHEN_FILE, Faults, Watch
from tpu_emulator.gateway import Gateway, Method
from tpu_emulator.lifecycle import Lifecycle
from tpu_emulator.messages import request_class
from tpu_emulator.mixins import CatalogService, OperationsService
from tpu_emulator.names import Names
from tpu_emulator.node_commands import NodeCommands
from tpu_emulator.operations import Operations
from tpu_emulator.scheduler import Clock, Scheduler
from tpu_emulator.service import TpuService
from tpu_emulator.store import Store
from tpu_emulator.vm import Vms

_THREADS = 128
_TPU = "google.cloud.tpu.v2.Tpu"
_OPERATIONS = "google.longrunning.Operations"
_LOCATIONS = "google.cloud.location.Locations"
_TPU_METHODS = (
    "CreateQueuedResource", "GetQueuedResource", "ListQueuedResources", "DeleteQueuedResource",
    "ResetQueuedResource",
    "CreateNode", "GetNode", "ListNodes", "DeleteNode", "StopNode", "StartNode", "UpdateNode",
)  # fmt: skip
_CATALOG_METHODS = (
    "ListAcceleratorTypes", "GetAcceleratorType", "ListRuntimeVersions", "GetRuntimeVersion",
)  # fmt: skip
_OPERATION_METHODS = ("GetOperation", "ListOperations", "CancelOperation", "DeleteOperation")
_LOCATION_METHODS = ("GetLocation", "ListLocations")


class Emulator:
    """One emulated cloud: serves from `start` until `stop`."""

    def __init__(self, config: EmulatorConfig) -> None:
        """Takes the socket and the state folder.

        Raises:
            SocketError: the socket or a folder cannot be used, see `sockets`.
            StateError: another version of the emulator wrote the state folder.
            ValueError: a price is invalid.
        """
        self._config = config
        self._locks = contextlib.ExitStack()
        sockets.prepare(config.socket)
        sockets.private_folder(config.state_dir)
        self._locks.enter_context(
            sockets.exclusive(config.socket.with_name(f"{config.socket.name}.lock"))
        )
        self._locks.enter_context(sockets.exclusive(config.state_dir / "state.lock"))
        self._store = Store(config.state_dir / "emulator.sqlite")
        self._vms = Vms(self._store, config)
        faults = Faults(self._store)
        clock = Clock(config.clock_skew)
        self._lifecycle = Lifecycle(self._store, self._vms, config, faults, clock)
        self._scheduler = Scheduler(self._store, self._lifecycle.run)
        methods = self._methods(faults, clock)
        self._gateway = Gateway(methods, self._store, faults)
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="rpc"))
        on_calls = FaultCommands(self._store, faults, {method.name for method in methods.values()})
        on_nodes = NodeCommands(self._store, self._lifecycle, faults)
        commands = on_calls.commands() | on_nodes.commands() | restart.commands()
        chaos = Chaos(faults, commands, on_nodes.nodes_in)
        self._watch = Watch(
            faults,
            {
                PREEMPT_AFTER: on_nodes.preempt_if_due,
                PREEMPT_WHEN_FILE: on_nodes.preempt_if_file,
                CHAOS: chaos.next_event,
            },
        )
        admin = AdminService(
            self._store, self._vms, commands | chaos.commands(), billing.prices(config.price)
        )
        self._server.add_generic_rpc_handlers((admin.handlers(), self._gateway))

    def start(self) -> None:
        """Recovers the VMs of the previous run, then serves."""
        self._lifecycle.recover()
        self._scheduler.start()
        self._watch.start()
        self._server.add_insecure_port(f"unix:{self._config.socket}")
        self._server.start()
        self._config.socket.chmod(0o600)

    def stop(self) -> None:
        """Stops serving and, unless `on_exit` is `keep`, ends every process of every VM."""
        self._gateway.stopping.set()
        self._vms.hurry.set()
        self._server.stop(grace=1.0).wait()
        self._watch.stop()
        self._scheduler.stop()
        try:
            if self._config.on_exit == "kill":
                self._vms.hurry.clear()
                self._vms.stop_all(self._config.exit_grace)
        finally:
            self._vms.close()
            self._store.close()
            self._locks.close()

    def _methods(self, faults: Faults, clock: Clock) -> dict[str, Method]:
        names = Names(self._config.project)
        tpu = TpuService(self._store, self._lifecycle, faults, self._config)
        catalog = CatalogService(names)
        operations = OperationsService(self._store, Operations(self._store, faults, clock), names)
        groups: list[tuple[str, Any, Callable[[str], Any], tuple[str, ...]]] = [
            (_TPU, tpu, request_class, _TPU_METHODS),
            (_TPU, catalog, request_class, _CATALOG_METHODS),
            (_OPERATIONS, operations, _request_of(operations_pb2), _OPERATION_METHODS),
            (_LOCATIONS, catalog, _request_of(locations_pb2), _LOCATION_METHODS),
        ]
        return {
            f"/{service}/{name}": Method(name, request(name), getattr(target, _snake(name)))
            for service, target, request, method_names in groups
            for name in method_names
        }


def _request_of(module: Any) -> Callable[[str], Any]:
    return lambda name: getattr(module, f"{name}Request")


def _snake(name: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()
