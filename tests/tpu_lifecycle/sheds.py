"""A TPU service that is not Google's: machines in sheds, which take DELETE at an address."""

from __future__ import annotations

import http.server
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tpu_lifecycle.service.backend import (
    ServiceFacts,
    TpuConflictError,
    TpuError,
    TpuName,
    TpuRequest,
    TpuState,
)

FACTS = ServiceFacts(
    title="shed service",
    apis=("sheds.example.com",),
    role="roles/sheds.keeper",
    permissions=("sheds.machines.create", "sheds.machines.delete"),
    list_zones="sheds zones",
    list_types="sheds types --in {zone}",
    list_images="sheds images --in {zone}",
    console="https://sheds.example.com/{project}/{zone}/{id}",
    bare_images=("shed-",),
)
ACCOUNT = '{"access_token": "shed-token"}'


@dataclass
class Machine:
    """One that is rented; it has no queue, and is ready at once."""

    request: TpuRequest
    created: datetime


class Sheds(http.server.ThreadingHTTPServer):
    """The service. Machines delete themselves here; everybody else goes through the backend."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.machines: dict[TpuName, Machine] = {}
        self.deleted_by_themselves: list[str] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Sheds

    def do_GET(self) -> None:
        """Answer as the metadata server of every machine."""
        is_token = self.path.endswith("/service-accounts/default/token")
        self._answer(200 if is_token else 404, ACCOUNT if is_token else "")

    def do_DELETE(self) -> None:
        assert self.headers["Authorization"] == "Bearer shed-token"
        zone, _, resource_id = self.path.removeprefix("/sheds/").partition("/")
        gone = self.server.machines.pop(TpuName(zone, resource_id), None)
        if gone is not None:
            self.server.deleted_by_themselves.append(resource_id)
        self._answer(404 if gone is None else 204)

    def _answer(self, code: int, text: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class ShedBackend:
    """The service as the life cycle knows it."""

    vm_endpoint = ""

    def __init__(self, sheds: Sheds, project_id: str) -> None:
        self.sheds = sheds
        self.project_id = project_id

    def resource_path(self, name: TpuName, api: str = "") -> str:
        return f"shed {name.zone}, place {name.resource_id}"

    def vm_deletions(self, name: TpuName, api: str = "") -> Sequence[str]:
        return [f"http://{self.sheds.address}/sheds/{name.zone}/{{node}}"]

    def create(self, request: TpuRequest) -> str:
        if request.name in self.sheds.machines:
            raise TpuConflictError(f"{request.name} is taken")
        self.sheds.machines[request.name] = Machine(request, datetime.now(UTC))
        return ""

    def creation_error(self, operation: str, chips: int) -> TpuError | None:
        return None

    def describe(self, name: TpuName) -> TpuState:
        machine = self.sheds.machines.get(name)
        if machine is None:
            return TpuState(name)
        return TpuState(
            name,
            node="READY",
            workers=1,
            labels=machine.request.labels,
            created=machine.created,
            node_created=machine.created,
        )

    def delete(self, name: TpuName) -> None:
        self.sheds.machines.pop(name, None)

    def list_zone(self, zone: str, labels: Mapping[str, str]) -> list[TpuState]:
        states = [self.describe(name) for name in self.sheds.machines if name.zone == zone]
        return [state for state in states if labels.items() <= state.labels.items()]

    def accelerator_types(self, zone: str) -> list[str]:
        return ["v5litepod-1"]

    def runtime_versions(self, zone: str) -> list[str]:
        return ["shed-1"]

    def zones(self) -> list[str]:
        return ["us-central1-a"]

    def close(self) -> None:
        pass
