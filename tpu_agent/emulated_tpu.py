"""Deletes the TPU of a VM of a Cloud TPU API emulator, which offers gRPC only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import grpc
from google.api_core.exceptions import NotFound
from google.api_core.gapic_v1.client_info import ClientInfo
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tpu_agent.own_tpu import USER_AGENT

_TIMEOUT_SECONDS = 30.0


def names(tpu_name: str, node_id: str) -> list[str]:
    """Return the names that a VM deletes: its queued resource, if there is one, then its node."""
    parent, kind, _ = tpu_name.rsplit("/", 2)
    node = f"{parent}/nodes/{node_id}"
    return [tpu_name, node] if kind == "queuedResources" else [node]


@contextmanager
def service(endpoint: str) -> Iterator[Callable[[str], bool]]:
    """Yield a function that requests a deletion by full name; False: there is no such resource."""
    with grpc.insecure_channel(endpoint) as channel:
        # The transport sends the user agent; a client that is given a transport does not set it.
        info = ClientInfo(user_agent=USER_AGENT)
        transport = TpuGrpcTransport(host=endpoint, channel=channel, client_info=info)
        yield partial(_delete, tpu_v2.TpuClient(transport=transport))


def _delete(client: tpu_v2.TpuClient, name: str) -> bool:
    try:
        if name.split("/")[-2] == "queuedResources":
            # Without force a queued resource with a running node is refused.
            request = {"name": name, "force": True}
            client.delete_queued_resource(request=request, timeout=_TIMEOUT_SECONDS)
        else:
            client.delete_node(name=name, timeout=_TIMEOUT_SECONDS)
    except NotFound:
        return False
    return True
