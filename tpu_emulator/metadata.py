"""The metadata server of one TPU VM worker, as `GCE_METADATA_HOST` finds it."""

from __future__ import annotations

import http.server
import json
import re
import socketserver
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tpu_emulator import catalog, names

ROOT = "/computeMetadata/v1/"
_DEFAULT_EMAIL = "default@tpu-emulator.invalid"
_DEFAULT_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_FAKE_TOKEN = "fake-token-of-the-tpu-emulator"  # noqa: S105

Tree = Mapping[str, Any]


def document(node: Any, *, worker: int, preempted: bool) -> Tree:
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
            "maintenance-event": "NONE",
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
    """Serves one tree over HTTP on 127.0.0.1, read anew for every request."""

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
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if url.path == "/":
            self._send(200, "computeMetadata/\n")
        elif self.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in self.headers:
            self._send(403, "Missing required header: Metadata-Flavor: Google\n")
        elif not url.path.startswith(ROOT):
            self._send(404, f"{url.path} was not found: paths start with {ROOT}\n")
        else:
            self._answer(url.path, recursive=query.get("recursive", ["false"])[0] == "true")

    def _answer(self, path: str, *, recursive: bool) -> None:
        value: Any = self.tree()
        for part in path.removeprefix(ROOT).strip("/").split("/"):
            if part:
                value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            self._send(404, f"{path} was not found\n")
        elif _is_leaf(path, value):
            self._send(200, *_leaf(path, value))
        elif not path.endswith("/"):
            self.send_response(301)
            self.send_header("Location", f"{path}/")
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif recursive:
            self._send(200, json.dumps(_camel_case(value)), "application/json")
        else:
            self._send(200, "".join(f"{key}{_slash(child)}\n" for key, child in value.items()))

    def _send(self, code: int, body: str, content_type: str = "application/text") -> None:
        data = body.encode()
        self.send_response(code)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the VMs poll."""


def _is_leaf(path: str, value: Any) -> bool:
    return not isinstance(value, Mapping) or path.endswith("/token")


def _leaf(path: str, value: Any) -> tuple[str, str]:
    if path.endswith("/token"):
        return json.dumps(value), "application/json"
    return ("\n".join(value) if isinstance(value, list) else str(value)), "application/text"


def _slash(value: Any) -> str:
    return "/" if isinstance(value, Mapping) and "access_token" not in value else ""


def _camel_case(value: Any) -> Any:
    """The keys of a recursive answer, camel case except below `attributes`."""
    if not isinstance(value, Mapping):
        return value
    return {
        re.sub("-([a-z0-9])", lambda match: match[1].upper(), key): (
            child if key == "attributes" else _camel_case(child)
        )
        for key, child in value.items()
        if key != "token"
    }
