"""Queries the VM's metadata server: notices of its end, attributes, and access tokens."""

from __future__ import annotations

import http
import http.client
import json
import os
import re
import socket
import time
import urllib.error
import urllib.request

_TIMEOUT_SECONDS = 1.0
_PAUSES_SECONDS = (0.5, 1, 2, 4, 8)
_TPU_ENV = re.compile(r"^(\w+):\s*'?([^'\s]*)", re.MULTILINE)
# The metadata server is link-local; a proxy from the environment cannot reach it.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def notice() -> str | None:
    """Return why the platform is about to stop this VM, or None.

    Only those maintenance events count that stop the VM, such as
    ``TERMINATE_ON_HOST_MAINTENANCE``: a machine that is moved while it runs keeps its job. A
    metadata server that does not answer is no notice: the VM still receives SIGTERM.

    Sources: https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption and
    https://cloud.google.com/compute/docs/metadata/getting-live-migration-notice
    """
    if _told("preempted") == "TRUE":
        return "the platform is taking this VM away (preempted)"
    event = _told("maintenance-event")
    if event.startswith("TERMINATE"):
        return f"the platform is about to stop this VM for maintenance ({event})"
    return None


def _told(name: str) -> str:
    """Return a value, or an empty string if the server does not have it or does not answer."""
    try:
        return _value(name)
    except (OSError, http.client.HTTPException):
        return ""


def attribute(name: str) -> str | None:
    """Return an attribute of the VM, or None if it does not exist.

    Also None without a metadata server, as on a machine that is no VM of the platform.

    :raises OSError: the metadata server exists but does not answer.
    """
    for pause in _PAUSES_SECONDS:
        try:
            return _value(f"attributes/{name}")
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.NOT_FOUND:
                return None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError | socket.gaierror):
                return None
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(pause)
    raise OSError(f"the metadata server does not say what instance/attributes/{name} is")


def tpu_env() -> dict[str, str]:
    """Return the platform's variables for this host, such as NODE_ID.

    :raises OSError: as :func:`attribute`.
    """
    return dict(_TPU_ENV.findall(attribute("tpu-env") or ""))


def token() -> str:
    """Return an access token of the VM's service account.

    :raises OSError: the VM has none, or the metadata server does not answer.
    """
    try:
        found = json.loads(_value("service-accounts/default/token"))
    except urllib.error.HTTPError as error:
        raise OSError(
            f"this VM has no service account; set tpu.service_account: {error}"
        ) from error
    return str(found["access_token"])


def _value(name: str) -> str:
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/{name}",
        headers={"Metadata-Flavor": "Google"},
    )
    with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as reply:
        return str(reply.read().decode(errors="replace").strip())
