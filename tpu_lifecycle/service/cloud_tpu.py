"""The Cloud TPU v2 API as a TPU backend, by queued resources or by nodes alone.

Source: https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import grpc
from google.api_core.client_options import ClientOptions
from google.api_core.gapic_v1.client_info import ClientInfo
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.longrunning import operations_pb2

from tpu_lifecycle.service import cloud_messages as messages
from tpu_lifecycle.service.backend import (
    TpuError,
    TpuName,
    TpuNotFoundError,
    TpuRequest,
    TpuState,
    TpuUnavailableError,
)
from tpu_lifecycle.service.cloud_errors import api_call, failure_of_creation

TPU_API = "https://tpu.googleapis.com/v2/"
"""Address of the service for a VM without a client library."""

QUEUED_RESOURCES = "queued-resources"
NODES = "nodes"
"""The API without a queue: a request gets its node at once or never."""

USER_AGENT = "bert-repretraining"

RPC_TIMEOUT_SECONDS = 30.0
"""The longest that one request takes. The API's own methods have no default."""

PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""Before each retry of a read or delete that found the service unavailable."""

_REQUEST_IDS = uuid.UUID("9b0e9b59-3c5f-4a55-9b57-0e2f3d6f8a11")
_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


def connect(
    *,
    project_id: str,
    endpoint: str | None = None,
    insecure: bool = False,
    credentials: Any = None,
    client_options: ClientOptions | None = None,
    role: str = "task",
) -> CloudTpuBackend:
    """Return a backend with a channel of its own.

    :param project_id: Google Cloud project.
    :param role: calling part of this program, such as ``teardown``: it is in the user agent of
        every call, and so in the service's audit log.
    :param endpoint: other than the public one, such as ``unix:/run/tpu/api.sock``.
    :param insecure: no TLS and no credentials: an emulator. Needs ``endpoint``.
    :param credentials: None: the application default credentials.
    """
    info = ClientInfo(user_agent=f"{USER_AGENT}/{role}")
    if insecure:
        if not endpoint:
            raise ValueError("insecure=True needs the endpoint of an emulator.")
        # api_endpoint alone would keep TLS, so the whole channel is replaced.
        channel = grpc.insecure_channel(endpoint)
        transport = TpuGrpcTransport(host=endpoint, channel=channel, client_info=info)
        client = tpu_v2.TpuClient(transport=transport)
        return CloudTpuBackend(client, project_id, vm_endpoint=endpoint)
    options = client_options or (ClientOptions(api_endpoint=endpoint) if endpoint else None)
    client = tpu_v2.TpuClient(credentials=credentials, client_options=options, client_info=info)
    return CloudTpuBackend(client, project_id)


class CloudTpuBackend:
    """TPUs of one project, each a queued resource with its nodes, or a node alone."""

    def __init__(self, client: tpu_v2.TpuClient, project_id: str, vm_endpoint: str = "") -> None:
        self._client = client
        self._project_id = project_id
        self._vm_endpoint = vm_endpoint

    @property
    def project_id(self) -> str:
        """Return the Google Cloud project."""
        return self._project_id

    @property
    def vm_endpoint(self) -> str:
        """Return the endpoint of an emulator, for its VMs; empty for the public API."""
        return self._vm_endpoint

    def resource_path(self, name: TpuName, api: str = QUEUED_RESOURCES) -> str:
        """Return the full name of the requested resource: a queued resource, or a node."""
        return self._node(name.zone, name.resource_id) if api == NODES else self._queued(name)

    def vm_deletions(self, name: TpuName, api: str = QUEUED_RESOURCES) -> list[str]:
        """Return a VM's deletion URLs: for its queued resource, and then for its node alone.

        The node is what costs money, and deleting it may be allowed where deleting the queued
        resource is not. Without ``force``, deleting a queued resource with a running node is
        refused. An emulator has no REST.
        """
        if self._vm_endpoint:
            return []
        queued = [] if api == NODES else [f"{TPU_API}{self._queued(name)}?force=true"]
        return [*queued, f"{TPU_API}{self._parent(name.zone)}/nodes/{{node}}"]

    def close(self) -> None:
        """Close the channel."""
        self._client.transport.close()

    def create(self, request: TpuRequest) -> str:
        """Send one CreateQueuedResource or CreateNode.

        For a queued resource, equal names and tokens give equal request ids: a retry creates
        nothing new, and is not taken for another request for the same name. A node's creation has
        no request id: its retry finds the name taken.
        """
        return self._create_node(request) if request.api == NODES else self._create_queued(request)

    def creation_error(self, operation: str, chips: int) -> TpuError | None:
        """Return the operation's error, or None; the service forgets an operation after a while."""
        what = f"GetOperation {operation}"
        request = operations_pb2.GetOperationRequest(name=operation)
        try:
            found = _repeated(
                what, lambda: self._client.get_operation(request, timeout=RPC_TIMEOUT_SECONDS)
            )
        except TpuError as error:
            _log.debug("%s", error)
            return None
        if not found.HasField("error"):
            return None
        return failure_of_creation(found.error.code, found.error.message, what, chips=chips)

    def _create_queued(self, request: TpuRequest) -> str:
        name = request.name
        request_id = uuid.uuid5(_REQUEST_IDS, f"{self._queued(name)}#{request.token}")
        with api_call(f"CreateQueuedResource {name}", creates=True, chips=request.chips):
            operation = self._client.create_queued_resource(
                request={
                    "parent": self._parent(name.zone),
                    "queued_resource_id": name.resource_id,
                    "queued_resource": messages.queued_resource(request, self._parent(name.zone)),
                    "request_id": str(request_id),
                },
                timeout=RPC_TIMEOUT_SECONDS,
            )
        return str(operation.operation.name)

    def _create_node(self, request: TpuRequest) -> str:
        name = request.name
        with api_call(f"CreateNode {name}", creates=True, chips=request.chips):
            operation = self._client.create_node(
                parent=self._parent(name.zone),
                node_id=name.resource_id,
                node=messages.node(request),
                timeout=RPC_TIMEOUT_SECONDS,
            )
        return str(operation.operation.name)

    def describe(self, name: TpuName) -> TpuState:
        """Read queued resource and nodes."""
        queued = self._found(
            f"GetQueuedResource {name}", self._client.get_queued_resource, self._queued(name)
        )
        paths = [self._node(name.zone, node_id) for node_id in name.node_ids]
        nodes = [self._found(f"GetNode {name}", self._client.get_node, path) for path in paths]
        return messages.state(name, queued, [node for node in nodes if node is not None])

    def delete(self, name: TpuName) -> None:
        """Delete the queued resource with its nodes, or nodes that exist without one.

        A role may allow deleting only one of the two, and the node is what costs money: if deleting
        the queued resource is refused, its nodes are deleted anyway, and the refusal is raised.
        """
        try:
            if self._delete_queued(name):
                return
        except TpuUnavailableError:
            raise
        except TpuError:
            for node_id in name.node_ids:
                try:
                    self._delete_node(name, node_id)
                except TpuError as error:
                    _log.warning("%s", error)
            raise
        for node_id in name.node_ids:
            self._delete_node(name, node_id)

    def list_zone(self, zone: str, labels: Mapping[str, str]) -> list[TpuState]:
        """Read all pages of the zone and select here: the API cannot filter."""
        queued = self._list(f"ListQueuedResources {zone}", "queued_resources", zone)
        nodes = self._list(f"ListNodes {zone}", "nodes", zone)
        groups: dict[str, list[tpu_v2.Node]] = {resource_id: [] for resource_id in queued}
        for node_id, node in nodes.items():
            groups.setdefault(_owner(node_id, node, queued), []).append(node)
        states = [_listed(zone, i, queued.get(i), groups[i]) for i in sorted(groups)]
        return [state for state in states if labels.items() <= state.labels.items()]

    def zones(self) -> list[str]:
        """Read all pages of the project's locations."""
        what = f"ListLocations of {self._project_id}"

        def call() -> list[str]:
            # The client does not follow the pages of calls that all Google services share.
            found: list[str] = []
            token = ""
            while True:
                request = locations_pb2.ListLocationsRequest(
                    name=f"projects/{self._project_id}", page_token=token
                )
                page = self._client.list_locations(request, timeout=RPC_TIMEOUT_SECONDS)
                found += [place.location_id for place in page.locations]
                token = page.next_page_token
                if not token:
                    return sorted(found)

        return _repeated(what, call)

    def accelerator_types(self, zone: str) -> list[str]:
        """Read all pages of the zone's accelerator types."""
        return sorted(self._list(f"ListAcceleratorTypes {zone}", "accelerator_types", zone))

    def runtime_versions(self, zone: str) -> list[str]:
        """Read all pages of the zone's runtime versions."""
        return sorted(self._list(f"ListRuntimeVersions {zone}", "runtime_versions", zone))

    def _delete_queued(self, name: TpuName) -> bool:
        what = f"DeleteQueuedResource {name}"
        # Without force a queued resource with a running node is refused.
        request = {"name": self._queued(name), "force": True}

        def call() -> None:
            self._client.delete_queued_resource(request=request, timeout=RPC_TIMEOUT_SECONDS)

        try:
            _repeated(what, call)
        except TpuNotFoundError:
            return False
        return True

    def _delete_node(self, name: TpuName, node_id: str) -> None:
        path = self._node(name.zone, node_id)

        def call() -> None:
            self._client.delete_node(name=path, timeout=RPC_TIMEOUT_SECONDS)

        try:
            _repeated(f"DeleteNode {name}", call)
        except TpuNotFoundError:
            _log.debug("%s is gone", name)

    def _found(self, what: str, get: Callable[..., Any], name: str) -> Any | None:
        try:
            return _repeated(what, lambda: get(name=name, timeout=RPC_TIMEOUT_SECONDS))
        except TpuNotFoundError:
            return None

    def _list(self, what: str, items: str, zone: str) -> dict[str, Any]:
        method = getattr(self._client, f"list_{items}")

        def call() -> dict[str, Any]:
            found: dict[str, Any] = {}
            for page in method(parent=self._parent(zone), timeout=RPC_TIMEOUT_SECONDS).pages:
                if page.unreachable:
                    raise TpuUnavailableError(f"{what}: cannot see {list(page.unreachable)}")
                found |= {item.name.rpartition("/")[2]: item for item in getattr(page, items)}
            return found

        return _repeated(what, call)

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project_id}/locations/{zone}"

    def _queued(self, name: TpuName) -> str:
        return f"{self._parent(name.zone)}/queuedResources/{name.resource_id}"

    def _node(self, zone: str, node_id: str) -> str:
        return f"{self._parent(zone)}/nodes/{node_id}"


def _owner(node_id: str, node: tpu_v2.Node, queued: Mapping[str, Any]) -> str:
    """Return the id under which a node was requested: several slices share one."""
    if node.queued_resource:
        return str(node.queued_resource.rpartition("/")[2])
    prefix, _, number = node_id.rpartition("-")
    is_slice = prefix in queued and number.isdecimal() and messages.slices(queued[prefix]) > 1
    return prefix if is_slice or node.multislice_node else node_id


def _listed(zone: str, resource_id: str, queued: Any | None, nodes: list[tpu_v2.Node]) -> TpuState:
    slices = messages.slices(queued) if queued is not None else 1
    for node in nodes:
        # Nodes that are left of several slices are numbered; the others may be gone.
        suffix = node.name.rpartition("/")[2].removeprefix(f"{resource_id}-")
        slices = max(slices, int(suffix) + 1 if suffix.isdecimal() else 1)
    return messages.state(TpuName(zone, resource_id, slices), queued, nodes)


def _repeated(what: str, call: Callable[[], _Result]) -> _Result:
    """Call until the service answers, a few times at most. Only for idempotent calls."""
    for pause in PAUSES_SECONDS:
        try:
            with api_call(what):
                return call()
        except TpuUnavailableError as error:
            _log.debug("%s, again in %s s", error, pause)
            time.sleep(pause)
    with api_call(what):
        return call()
