"""The one call to the TPU service that a TPU VM makes: delete the TPU it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

USER_AGENT = "bert-repretraining/vm"
"""Tells the VM's calls from all others, in audit logs."""

_TIMEOUT_SECONDS = 30.0


def delete(tpu_name: str, node_id: str, endpoint: str) -> str:
    """Ask the service once to delete the TPU.

    :param tpu_name: ``projects/P/locations/Z/queuedResources/ID``, or ``…/nodes/ID``.
    :param node_id: this VM's node, deleted if there is no such queued resource (any more).
    :param endpoint: of an emulator, without TLS and credentials; empty: the public API.
    :returns: the service's answer, in words.
    :raises Exception: whatever the client library raises; asking again is always right.
    """
    # Imported late: slow to load, and most TPU VMs never get here.
    from google.api_core.exceptions import NotFound

    parent, kind, _ = tpu_name.rsplit("/", 2)
    node = f"{parent}/nodes/{node_id}"
    with _client(endpoint) as client:
        if kind == "queuedResources":
            try:
                # Without force a queued resource with a running node is refused.
                request = {"name": tpu_name, "force": True}
                client.delete_queued_resource(request=request, timeout=_TIMEOUT_SECONDS)
            except NotFound:
                pass
            else:
                return f"the service deletes {tpu_name}"
        try:
            client.delete_node(name=node, timeout=_TIMEOUT_SECONDS)
        except NotFound:
            return f"the service knows neither {tpu_name} nor {node}"
        return f"the service deletes {node}"


@contextmanager
def _client(endpoint: str) -> Iterator[Any]:
    import grpc
    from google.api_core.gapic_v1.client_info import ClientInfo
    from google.cloud import tpu_v2
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    info = ClientInfo(user_agent=USER_AGENT)
    if not endpoint:
        with tpu_v2.TpuClient(client_info=info) as client:
            yield client
        return
    with grpc.insecure_channel(endpoint) as channel:
        # The transport sends the user agent; a client that is handed one never sees it.
        transport = TpuGrpcTransport(host=endpoint, channel=channel, client_info=info)
        yield tpu_v2.TpuClient(transport=transport)
