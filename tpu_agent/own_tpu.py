"""Deletes the TPU that a VM belongs to: the only call that the VM makes to the TPU service."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

from tpu_agent import metadata

USER_AGENT = "bert-repretraining/vm"
"""Distinguishes the VM's calls from all others in audit logs."""

_TIMEOUT_SECONDS = 30.0


def delete(tpu_name: str, node_id: str, urls: Sequence[str], endpoint: str) -> str:
    """Send requests to the service until it agrees to delete the TPU or a part of it.

    The first request is for all of it, the last for the node of this VM, which is what costs money.
    The same rule is in ``boot.py`` and ``boot_container.sh``, for a VM on which this cannot run;
    one table of cases tests all three.

    :param tpu_name: full name of the TPU in the service.
    :param node_id: this VM's node.
    :param urls: to which DELETE is sent, in this order, with the token of the VM's account; those
        of :meth:`tpu_lifecycle.service.backend.TpuBackend.vm_deletions`.
    :param endpoint: of an emulator of the Cloud TPU API, which is asked instead of ``urls``.
    :returns: the service's answers, in words.
    :raises Exception: any error of the service or its client; a retry is always right.
    """
    refused: list[tuple[str, Exception]] = []
    with _service(tpu_name, node_id, urls, endpoint) as (names, ask):
        for name in names:
            try:
                is_accepted = ask(name)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next may be accepted
                refused.append((name, error))
                continue
            if is_accepted:
                alone = "".join(f", as it does not delete {no}: {why!r}" for no, why in refused)
                return f"the service deletes {name}{' alone' if refused else ''}{alone}"
    if refused:
        raise refused[-1][1]
    if not names:
        raise OSError(f"nothing in the metadata of {tpu_name} says how a VM deletes it")
    return f"the service knows none of {', '.join(names)}"


@contextmanager
def _service(
    tpu_name: str, node_id: str, urls: Sequence[str], endpoint: str
) -> Iterator[tuple[Sequence[str], Callable[[str], bool]]]:
    """Yield the names to delete, and a function that deletes one; False: it does not exist."""
    if not endpoint:
        yield urls, _by_http
        return
    # Imported late: slow to load, and not needed on a VM of a real service.
    from tpu_agent import emulated_tpu

    with emulated_tpu.service(endpoint) as ask:
        yield emulated_tpu.names(tpu_name, node_id), ask


def _by_http(url: str) -> bool:
    """Ask without a client library: an image without it must not keep its TPU forever."""
    request = urllib.request.Request(  # noqa: S310 - the node's own metadata has the address
        url,
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
