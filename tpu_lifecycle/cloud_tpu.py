"""The Cloud TPU v2 API as a TPU backend, by queued resources.

Source: https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.queuedResources
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
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tpu_lifecycle import cloud_messages as messages
from tpu_lifecycle.backend import (
    TpuName,
    TpuNotFoundError,
    TpuRequest,
    TpuState,
    TpuUnavailableError,
)
from tpu_lifecycle.cloud_errors import api_call

RPC_TIMEOUT_SECONDS = 30.0
"""The longest that one request takes. The API's own methods have no default."""

PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""Before each repetition of a read or delete that found the service unavailable."""

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
    client_info: ClientInfo | None = None,
) -> CloudTpuBackend:
    """Return a backend with a channel of its own.

    :param project_id: Google Cloud project.
    :param endpoint: other than the public one, such as ``unix:/run/tpu/api.sock``.
    :param insecure: no TLS and no credentials: an emulator. Needs ``endpoint``.
    :param credentials: None: the application default credentials.
    """
    info = {"client_info": client_info} if client_info else {}
    if insecure:
        if not endpoint:
            raise ValueError("insecure=True needs the endpoint of an emulator.")
        # api_endpoint alone would keep TLS, so the whole channel is replaced.
        transport = TpuGrpcTransport(host=endpoint, channel=grpc.insecure_channel(endpoint))
        return CloudTpuBackend(tpu_v2.TpuClient(transport=transport, **info), project_id)
    options = client_options or (ClientOptions(api_endpoint=endpoint) if endpoint else None)
    client = tpu_v2.TpuClient(credentials=credentials, client_options=options, **info)
    return CloudTpuBackend(client, project_id)


class CloudTpuBackend:
    """TPUs of one project, each a queued resource with one node of the same id."""

    def __init__(self, client: tpu_v2.TpuClient, project_id: str) -> None:
        self._client = client
        self._project_id = project_id

    @property
    def project_id(self) -> str:
        """Return the Google Cloud project."""
        return self._project_id

    def close(self) -> None:
        """Close the channel."""
        self._client.transport.close()

    def create(self, request: TpuRequest) -> None:
        """Send one CreateQueuedResource.

        Equal names and tokens give equal request ids: a repetition makes nothing new, and is not
        taken for somebody else's request for the same name.
        """
        name = request.name
        request_id = uuid.uuid5(_REQUEST_IDS, f"{self._queued(name)}#{request.token}")
        with api_call(f"CreateQueuedResource {name}"):
            self._client.create_queued_resource(
                request={
                    "parent": self._parent(name.zone),
                    "queued_resource_id": name.resource_id,
                    "queued_resource": messages.queued_resource(request, self._parent(name.zone)),
                    "request_id": str(request_id),
                },
                timeout=RPC_TIMEOUT_SECONDS,
            )

    def describe(self, name: TpuName) -> TpuState:
        """Read queued resource and node."""
        queued = self._found(
            f"GetQueuedResource {name}", self._client.get_queued_resource, self._queued(name)
        )
        node = self._found(f"GetNode {name}", self._client.get_node, self._node(name))
        return messages.state(name, queued, node)

    def delete(self, name: TpuName) -> None:
        """Delete the queued resource with its node, or a node that is there without one."""
        if not self._delete_queued(name):
            self._delete_node(name)

    def list_zone(self, zone: str, labels: Mapping[str, str]) -> list[TpuState]:
        """Read all pages of the zone and select here: the API cannot filter."""
        queued = self._list(f"ListQueuedResources {zone}", "queued_resources", zone)
        nodes = self._list(f"ListNodes {zone}", "nodes", zone)
        names = queued.keys() | nodes.keys()
        states = [
            messages.state(TpuName(zone, i), queued.get(i), nodes.get(i)) for i in sorted(names)
        ]
        return [state for state in states if labels.items() <= state.labels.items()]

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

    def _delete_node(self, name: TpuName) -> None:
        def call() -> None:
            self._client.delete_node(name=self._node(name), timeout=RPC_TIMEOUT_SECONDS)

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

    def _node(self, name: TpuName) -> str:
        return f"{self._parent(name.zone)}/nodes/{name.resource_id}"


def _repeated(what: str, call: Callable[[], _Result]) -> _Result:
    """Call until the service answers, a few times at most. Only for what may happen twice."""
    for pause in PAUSES_SECONDS:
        try:
            with api_call(what):
                return call()
        except TpuUnavailableError as error:
            _log.debug("%s, again in %s s", error, pause)
            time.sleep(pause)
    with api_call(what):
        return call()
