"""The one call to the TPU service that a TPU VM makes: delete the TPU it belongs to."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from tpu_agent import metadata

USER_AGENT = "bert-repretraining/vm"
"""Tells the VM's calls from all others, in audit logs."""

TPU_API = "https://tpu.googleapis.com/v2/"

_TIMEOUT_SECONDS = 30.0


def delete(tpu_name: str, node_id: str, endpoint: str) -> str:
    """Ask the service once to delete the TPU, and unless it agrees, this VM's node alone.

    The node is what costs money, and may be deleted where the queued resource may not. The same
    rule is in ``boot.py`` and ``boot_container.sh``, for a VM on which this cannot run; one table
    of cases tests all three.

    :param tpu_name: ``projects/P/locations/Z/queuedResources/ID``, or ``…/nodes/ID``.
    :param node_id: this VM's node.
    :param endpoint: of an emulator, without TLS and credentials; empty: the public API.
    :returns: the service's answers, in words.
    :raises Exception: whatever the service or its client raises; asking again is always right.
    """
    node = f"{tpu_name.rsplit('/', 2)[0]}/nodes/{node_id}"
    refusal: Exception | None = None
    with _service(endpoint) as ask:
        try:
            if _is_queued(tpu_name) and ask(tpu_name):
                return f"the service deletes {tpu_name}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the node may still go
            refusal = error
        if ask(node):
            because = f" alone, as it does not delete {tpu_name}: {refusal!r}" if refusal else ""
            return f"the service deletes {node}{because}"
    if refusal is not None:
        raise refusal
    return f"the service knows neither {tpu_name} nor {node}"


@contextmanager
def _service(endpoint: str) -> Iterator[Callable[[str], bool]]:
    """Yield what asks for a deletion by full name; False: there is no such resource."""
    # Imported late: slow to load, and most TPU VMs never get here.
    try:
        import grpc
        from google.api_core.gapic_v1.client_info import ClientInfo
        from google.cloud import tpu_v2
        from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
    except ImportError:
        if endpoint:  # an emulator speaks nothing else
            raise
        yield _by_http
        return
    info = ClientInfo(user_agent=USER_AGENT)
    if not endpoint:
        with tpu_v2.TpuClient(client_info=info) as client:
            yield partial(_by_client, client)
        return
    with grpc.insecure_channel(endpoint) as channel:
        # The transport sends the user agent; a client that is handed one never sees it.
        transport = TpuGrpcTransport(host=endpoint, channel=channel, client_info=info)
        yield partial(_by_client, tpu_v2.TpuClient(transport=transport))


def _by_client(client: Any, name: str) -> bool:
    from google.api_core.exceptions import NotFound

    try:
        if _is_queued(name):
            # Without force a queued resource with a running node is refused.
            request = {"name": name, "force": True}
            client.delete_queued_resource(request=request, timeout=_TIMEOUT_SECONDS)
        else:
            client.delete_node(name=name, timeout=_TIMEOUT_SECONDS)
    except NotFound:
        return False
    return True


def _by_http(name: str) -> bool:
    """Do without the client library: an image without it must not keep its TPU for ever."""
    request = urllib.request.Request(  # noqa: S310 - the address is a constant, https
        TPU_API + name + ("?force=true" if _is_queued(name) else ""),
        method="DELETE",
        headers={"Authorization": f"Bearer {metadata.token()}", "User-Agent": USER_AGENT},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):  # noqa: S310 - as above
            return True
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise


def _is_queued(name: str) -> bool:
    return name.split("/")[-2] == "queuedResources"
