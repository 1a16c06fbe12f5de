"""Asks the VM's metadata server whether the VM is being taken away."""

from __future__ import annotations

import http.client
import os
import urllib.request

_TIMEOUT_SECONDS = 1.0
# The metadata server is link-local; a proxy from the environment cannot reach it.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def preempted() -> bool:
    """Return whether the platform has marked this VM as preempted.

    A metadata server that does not answer is no sign of preemption: the VM's SIGTERM still comes.
    Source: https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption
    """
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/preempted",
        headers={"Metadata-Flavor": "Google"},
    )
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as reply:
            return bool(reply.read().strip() == b"TRUE")
    except (OSError, http.client.HTTPException):
        return False
