"""One small HTTP server that plays the Google Cloud APIs that preflight asks, over real HTTP.

It answers what the unmodified client sends, and only methods that Google's own description of the
API has: these come with google-api-python-client. A reply may only have fields of the described
response. So a path or field that exists in this repository alone is an error here too.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.serving import serving

PROJECT = "my-project"
CALLER = f"airflow@{PROJECT}.iam.gserviceaccount.com"
TPU_ACCOUNT = f"tpu@{PROJECT}.iam.gserviceaccount.com"
DATA_ACCOUNT = f"data@{PROJECT}.iam.gserviceaccount.com"
DIGEST = "sha256:" + "a1" * 32
REGION = "us-central1"
TOKEN = "a-token"  # noqa: S105 - of this server alone

DOCUMENTS = {
    "artifactregistry": "artifactregistry.v1",
    "cloudresourcemanager": "cloudresourcemanager.v3",
    "compute": "compute.v1",
    "iam": "iam.v1",
    "serviceusage": "serviceusage.v1",
    "serviceusage/v1beta1": "serviceusage.v1beta1",
}
QUOTA = "tpu.googleapis.com/tpu-v5s-litepod-serving-preemptible"


@dataclass
class Account:
    """A service account, and whether the caller may act as it."""

    disabled: bool = False
    act_as: bool = True


@dataclass
class CloudState:
    """What the project is like. The base case has no mistake."""

    enabled: set[str] = field(
        default_factory=lambda: {
            f"{name}.googleapis.com"
            for name in (*DOCUMENTS, "tpu", "storage", "dataflow")
            if "/" not in name
        }
    )
    denied: set[str] = field(default_factory=set)
    """Permissions of the project that the caller does not have."""
    silent: set[str] = field(default_factory=set)
    """APIs that answer 403."""
    broken: set[str] = field(default_factory=set)
    """APIs that answer 503."""
    accounts: dict[str, Account] = field(
        default_factory=lambda: {TPU_ACCOUNT: Account(), DATA_ACCOUNT: Account()}
    )
    default_account: str | None = None
    networks: set[str] = field(default_factory=lambda: {"default", "pipeline"})
    subnetworks: dict[tuple[str, str], bool] = field(
        default_factory=lambda: {(REGION, "default"): True, (REGION, "pipeline"): True}
    )
    """Whether they have Private Google Access, by region and name."""
    images: dict[str, str] = field(default_factory=lambda: {"data-job": DIGEST, "trainer": DIGEST})
    """Digest of each image, which has the tag ``1``."""
    quotas: dict[str, dict[str, int]] = field(
        default_factory=lambda: {QUOTA: {"us-central1-a": 16, REGION: 32}}
    )
    """Limits by metric, and by zone or region."""
    clock_is_behind: timedelta = timedelta()
    """By how much this server's clock is behind the machine's."""
    refuses_tokens: bool = False
    airflow_version: str = "3.3.2"
    connections: set[str] = field(
        default_factory=lambda: {"google_cloud_default", "alerts_mail", "alerts_slack"}
    )
    requests: list[str] = field(default_factory=list)


class NotFoundError(Exception):
    """There is no such thing."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: GoogleStub

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the tests quiet."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        now = datetime.now(UTC) - self.server.state.clock_is_behind
        return format_datetime(now, usegmt=True)

    def do_HEAD(self) -> None:
        path = urllib.parse.unquote(self.path)
        if path.startswith("/v2/"):
            self._registry(path)
        else:
            self._reply(404, {})

    def do_GET(self) -> None:
        self._answer("GET", {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/token":
            self._token()
        else:
            self._answer("POST", json.loads(body))

    def _answer(self, method: str, body: dict[str, Any]) -> None:
        state, url = self.server.state, urllib.parse.urlsplit(self.path)
        state.requests.append(f"{method} {self.path}")
        first, _, path = url.path.removeprefix("/").partition("/")
        if first == "api":
            self._airflow(path)
            return
        service = first
        if service in state.broken:
            self._error(503, "try again later")
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._error(401, "no valid token")
        elif f"{service}.googleapis.com" not in state.enabled:
            self._error(403, f"{service} has not been used in {PROJECT}", "SERVICE_DISABLED")
        elif service in state.silent:
            self._error(403, "permission denied", "IAM_PERMISSION_DENIED")
        else:
            described = find_method(service, method, path)
            try:
                answer = self._content(described["id"], path, url.query, body)
            except NotFoundError:
                self._error(404, f"{path} was not found")
                return
            check_fields(service, path, described, answer)
            self._reply(200, answer)

    def _content(self, method: str, path: str, query: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a method.

        :raises NotFoundError: what is asked for is not there.
        """
        names = [urllib.parse.unquote(part) for part in path.split("/")]
        last = names[-1].removesuffix(":testIamPermissions")
        asked = body.get("permissions", [])
        values = urllib.parse.parse_qs(query)
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "serviceusage.services.batchGet": lambda: {
                "services": [self._service(name) for name in values["names"]]
            },
            "serviceusage.services.consumerQuotaMetrics.list": lambda: self._quotas(
                values.get("pageToken", [""])[0]
            ),
            "cloudresourcemanager.projects.testIamPermissions": lambda: self._project_rights(
                last, asked
            ),
            "iam.projects.serviceAccounts.get": lambda: {
                "email": last,
                "disabled": self._account(last).disabled,
            },
            "iam.projects.serviceAccounts.testIamPermissions": lambda: held(
                asked if self._account(last).act_as else []
            ),
            "compute.projects.get": self._project,
            "compute.networks.get": lambda: self._network(last),
            "compute.subnetworks.get": lambda: self._subnetwork(names[-3], last),
            "artifactregistry.projects.locations.repositories.dockerImages.get": lambda: (
                self._image(last)
            ),
        }
        return answers[method]()

    def _project_rights(self, project: str, asked: list[str]) -> dict[str, Any]:
        self._need(project == PROJECT)
        return held(name for name in asked if name not in self.server.state.denied)

    def _account(self, email: str) -> Account:
        self._need(email in self.server.state.accounts)
        return self.server.state.accounts[email]

    def _project(self) -> dict[str, Any]:
        default = self.server.state.default_account
        return {"name": PROJECT} | ({"defaultServiceAccount": default} if default else {})

    def _network(self, name: str) -> dict[str, Any]:
        self._need(name in self.server.state.networks)
        return {"name": name}

    def _subnetwork(self, region: str, name: str) -> dict[str, Any]:
        subnetworks = self.server.state.subnetworks
        self._need((region, name) in subnetworks)
        return {"name": name, "privateIpGoogleAccess": subnetworks[region, name]}

    def _image(self, reference: str) -> dict[str, Any]:
        name, _, digest = reference.partition("@")
        self._need(self.server.state.images.get(name) == digest)
        return {"name": reference}

    def _service(self, name: str) -> dict[str, str]:
        enabled = name.rpartition("/")[2] in self.server.state.enabled
        return {"name": name, "state": "ENABLED" if enabled else "DISABLED"}

    def _quotas(self, token: str) -> dict[str, Any]:
        """Return one metric a page."""
        metrics = sorted(self.server.state.quotas.items())
        index = int(token or 0)
        more = {"nextPageToken": str(index + 1)} if index + 1 < len(metrics) else {}
        return more | {"metrics": [quota_metric(*item) for item in metrics[index : index + 1]]}

    def _registry(self, path: str) -> None:
        """Play a container registry that gives everybody a token."""
        _, _, name, _, reference = path.rsplit("/", 4)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            realm = f'Bearer realm="{self.server.url}/api/registry-token",service="registry"'
            self._reply(401, {}, {"WWW-Authenticate": realm})
            return
        digest = self.server.state.images.get(name)
        known = digest is not None and reference in (digest, "1")
        self._reply(200 if known else 404, {}, {"Docker-Content-Digest": digest or ""})

    def _airflow(self, path: str) -> None:
        state = self.server.state
        if path == "registry-token":
            self._reply(200, {"token": TOKEN})
        elif path == "v2/version":
            self._reply(200, {"version": state.airflow_version, "git_version": None})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reply(401, {"detail": "Not authenticated"})
        else:
            known = path.rpartition("/")[2] in state.connections
            self._reply(200 if known else 404, {})

    def _token(self) -> None:
        if self.server.state.refuses_tokens:
            error = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
            self._reply(400, error)
        else:
            self._reply(200, {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})

    @staticmethod
    def _need(is_there: bool) -> None:
        if not is_there:
            raise NotFoundError

    def _error(self, status: int, message: str, reason: str = "") -> None:
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]
        error = {"code": status, "message": message} | ({"details": details} if reason else {})
        self._reply(status, {"error": error})

    def _reply(
        self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def held(permissions: Any) -> dict[str, Any]:
    """Return the answer of testIamPermissions; without any it has no list."""
    found = list(permissions)
    return {"permissions": found} if found else {}


def quota_metric(name: str, limits: dict[str, int]) -> dict[str, Any]:
    """Return a metric with a limit by zone and one by region, each with a default of 0."""
    result = []
    for kind in ("zone", "region"):
        buckets: list[dict[str, Any]] = [{"effectiveLimit": "0"}]
        for place, value in limits.items():
            if (place.count("-") == 2) == (kind == "zone"):
                dimensions = {kind: place}
                buckets.append({"effectiveLimit": str(value), "dimensions": dimensions})
        result.append({"unit": f"1/{{project}}/{{{kind}}}", "quotaBuckets": buckets})
    return {"metric": name, "consumerQuotaLimits": result}


# Google's description of its APIs


@functools.cache
def document(service: str, path: str) -> dict[str, Any]:
    """Return the description of the API, in the version that the path begins with."""
    name = DOCUMENTS.get(f"{service}/{path.partition('/')[0]}", DOCUMENTS[service])
    folder = importlib.resources.files("googleapiclient.discovery_cache.documents")
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return content


def methods(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all methods of an API."""
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


@functools.cache
def find_method(service: str, verb: str, path: str) -> dict[str, Any]:
    """Return the description of the method that a request calls.

    :raises AssertionError: the API has none.
    """
    described = document(service, path)
    wanted = f"{described['servicePath']}{path}" if service == "compute" else path
    for method in methods(described):
        pattern = re.sub(
            r"\\\{[^}]+\\\}", "[^/]+", re.escape(method.get("flatPath", method["path"]))
        )
        full = re.escape(described["servicePath"]) + pattern
        if method["httpMethod"] == verb and re.fullmatch(full, wanted):
            return method
    raise AssertionError(f"{service} has no method for {verb} {path}")


def check_fields(service: str, path: str, method: dict[str, Any], answer: dict[str, Any]) -> None:
    """Check that an answer has only fields that the description has.

    :raises AssertionError: it has others.
    """
    schema = document(service, path)["schemas"][method["response"]["$ref"]]
    unknown = answer.keys() - schema["properties"].keys()
    assert not unknown, f"{method['id']} answers no {unknown}"


class GoogleStub(ThreadingHTTPServer):
    """The server on a free loopback port."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.state = CloudState()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def registry(self) -> str:
        """The same server as a container registry: its host in an image's name."""
        return f"127.0.0.1:{self.server_port}"

    def environment(self) -> dict[str, str]:
        """Return what makes clients ask this server instead of Google."""
        names = [name for name in DOCUMENTS if "/" not in name]
        return {
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name.upper()}": f"{self.url}/{name}/"
            for name in names
        }


@contextlib.contextmanager
def google_stub() -> Iterator[GoogleStub]:
    """Serve while the context lasts."""
    with serving(GoogleStub()) as server:
        yield server
