"""The metadata server of one TPU VM worker, as `GCE_METADATA_HOST` finds it."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tpu_emulator import catalog, names

ROOT = "/computeMetadata/v1/"
_DEFAULT_EMAIL = "default@tpu-emulator.invalid"
_DEFAULT_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_FAKE_TOKEN = "fake-token-of-the-tpu-emulator"  # noqa: S105

Tree = Mapping[str, Any]
_TEXT = "application/text"
_JSON = "application/json"
_CHANGE_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Reply:
    """One answer of the metadata server."""

    code: int
    body: str
    content_type: str = _TEXT
    location: str = ""

    @property
    def etag(self) -> str:
        """Changes with the content."""
        return hashlib.sha256(self.body.encode()).hexdigest()[:16]


def document(node: Any, *, worker: int, preempted: bool, maintenance: bool) -> Tree:
    """Everything the worker's metadata server knows, as a tree of folders and string values."""
    location, node_id = names.split(node.name)
    account = _service_account(node)
    return {
        "project": {"project-id": location.project, "numeric-project-id": "1"},
        "universe": {"universe-domain": "googleapis.com"},
        "instance": {
            "attributes": dict(node.metadata) | _attributes(node, location.project, worker),
            "hostname": f"{node_id}-w-{worker}.{location.zone}.c.{location.project}.internal",
            "id": str(node.id * 1000 + worker),
            "maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE" if maintenance else "NONE",
            "name": f"{node_id}-w-{worker}",
            "preempted": "TRUE" if preempted else "FALSE",
            "service-accounts": {"default": account, account["email"]: account},
            "zone": f"projects/1/zones/{location.zone}",
        },
    }


def _attributes(node: Any, project: str, worker: int) -> dict[str, str]:
    location, node_id = names.split(node.name)
    environment = {
        "ACCELERATOR_TYPE": node.accelerator_type,
        "CONSUMER_PROJECT_ID": project,
        "NODE_ID": node_id,
        "RUNTIME_VERSION": node.runtime_version,
        "TOPOLOGY": catalog.ACCELERATOR_TYPES[node.accelerator_type].topology,
        "WORKER_ID": str(worker),
        "ZONE": location.zone,
    }
    if node.multislice_node:
        environment["MEGASCALE_SLICE_ID"] = node_id.rpartition("-")[2]
    return {
        "accelerator-type": node.accelerator_type,
        "agent-worker-number": str(worker),
        "tpu-env": "".join(f"{key}: '{value}'\n" for key, value in environment.items()),
        "worker-network-endpoints": ",".join(
            f"unknown:unknown:{endpoint.ip_address}" for endpoint in node.network_endpoints
        ),
    }


def _service_account(node: Any) -> dict[str, Any]:
    scopes = tuple(node.service_account.scope) or _DEFAULT_SCOPES
    token = {"access_token": _FAKE_TOKEN, "expires_in": 3600, "token_type": "Bearer"}
    return {
        "aliases": ["default"],
        "email": node.service_account.email or _DEFAULT_EMAIL,
        "scopes": list(scopes),
        "token": token,
    }


class MetadataServer:
    """Serves one tree over HTTP on 127.0.0.1, read again for every request."""

    def __init__(self, tree: Callable[[], Tree], port: int = 0) -> None:
        """Binds at once; port 0 picks a free one.

        Raises:
            OSError: the port is taken.
        """
        handler = type("Handler", (_Handler,), {"tree": staticmethod(tree)})
        self._server = _LoopbackServer(("127.0.0.1", port), handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops serving and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _LoopbackServer(http.server.ThreadingHTTPServer):
    def server_bind(self) -> None:
        """Binds without the reverse name lookup of the base class, which can take seconds."""
        socketserver.TCPServer.server_bind(self)


class _Handler(http.server.BaseHTTPRequestHandler):
    tree: Callable[[], Tree]
    server_version = "Metadata Server for VM"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers one request; every answer carries the header by which clients recognize a VM."""
        url = urlsplit(self.path)
        if url.path == "/":
            self._send(Reply(200, "computeMetadata/\n"))
        elif self.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in self.headers:
            self._send(Reply(403, "Missing required header: Metadata-Flavor: Google\n"))
        elif not url.path.startswith(ROOT):
            self._send(Reply(404, f"{url.path} was not found: paths start with {ROOT}\n"))
        else:
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            try:
                self._send(self._awaited(url.path, query))
            except ValueError:
                self._send(Reply(400, f"timeout_sec {query['timeout_sec']!r} is no number\n"))

    def _awaited(self, path: str, query: Mapping[str, str]) -> Reply:
        """The answer; with `wait_for_change` as soon as it differs from the one known."""
        recursive = query.get("recursive", "").lower() == "true"
        reply = lookup(self.tree(), path, recursive=recursive)
        if query.get("wait_for_change", "").lower() != "true":
            return reply
        known = query.get("last_etag", reply.etag)
        deadline = time.monotonic() + float(query.get("timeout_sec", "inf"))
        while reply.etag == known and time.monotonic() < deadline:
            time.sleep(_CHANGE_POLL_SECONDS)
            reply = lookup(self.tree(), path, recursive=recursive)
        return reply

    def _send(self, reply: Reply) -> None:
        data = reply.body.encode()
        self.send_response(reply.code)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", reply.etag)
        if reply.location:
            self.send_header("Location", reply.location)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing, because the VMs poll."""


def lookup(tree: Tree, path: str, *, recursive: bool) -> Reply:
    """The reply to a GET of this path.

    Args:
        tree: as `document` returns it.
        path: starts with `ROOT`; a folder ends with a slash.
        recursive: a folder is answered as JSON with everything below it.
    """
    value: Any = tree
    for part in path.removeprefix(ROOT).strip("/").split("/"):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return Reply(404, f"{path} was not found\n")
    if _is_token(value):
        return Reply(200, json.dumps(value), _JSON)
    if not isinstance(value, Mapping):
        return Reply(200, "\n".join(value) if isinstance(value, list) else str(value))
    if not path.endswith("/"):
        return Reply(301, "", location=f"{path}/")
    if recursive:
        return Reply(200, json.dumps(_camel_case(value)), _JSON)
    return Reply(200, "".join(f"{key}{_slash(child)}\n" for key, child in value.items()))


def _is_token(value: Any) -> bool:
    return isinstance(value, Mapping) and "access_token" in value


def _slash(value: Any) -> str:
    return "/" if isinstance(value, Mapping) and not _is_token(value) else ""


def _camel_case(value: Any) -> Any:
    """The keys of a recursive answer, camel case except below `attributes`."""
    if not isinstance(value, Mapping):
        return value
    return {
        re.sub("-([a-z0-9])", lambda match: match[1].upper(), key): (
            child if key == "attributes" else _camel_case(child)
        )
        for key, child in value.items()
        if not _is_token(child)
    }
