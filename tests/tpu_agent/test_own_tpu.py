"""How a TPU VM asks for its own deletion when its image lacks the client library."""

from __future__ import annotations

import contextlib
import http.server
import re
import sys
import urllib.error
from collections.abc import Iterator

import pytest

from tests.serving import serving
from tests.tpu_agent import giving_back
from tpu_agent import own_tpu

PARENT = "/v2/projects/p/locations/z"
QUEUED = "projects/p/locations/z/queuedResources/q"
NODE = "projects/p/locations/z/nodes/n"
ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default/token"


class Service(http.server.ThreadingHTTPServer):
    """The metadata server and a TPU service that speaks REST."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token: bytes | None = b'{"access_token": "vm-token"}'
        self.deletions: list[str] = []
        self.answers: list[int] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        assert self.path == ACCOUNT
        self.send_response(200 if self.server.token else 404)
        self.end_headers()
        self.wfile.write(self.server.token or b"")

    def do_DELETE(self) -> None:
        assert self.headers["Authorization"] == "Bearer vm-token"
        assert self.headers["User-Agent"] == own_tpu.USER_AGENT
        self.server.deletions.append(self.path)
        self.send_response(self.server.answers.pop(0))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with serving(Service()) as service:
        address = f"127.0.0.1:{service.server_port}"
        monkeypatch.setenv("GCE_METADATA_HOST", address)
        monkeypatch.setattr(own_tpu, "TPU_API", f"http://{address}/v2/")
        missing = "google.cloud.tpu_v2.services.tpu.transports"
        monkeypatch.setitem(sys.modules, missing, None)
        yield service


@pytest.mark.parametrize("case", giving_back.CASES, ids=str)
def test_without_the_client_library_it_asks_over_rest(
    service: Service, case: giving_back.Case
) -> None:
    service.answers = list(case.answers)
    with contextlib.suppress(urllib.error.HTTPError):
        own_tpu.delete(QUEUED if case.is_queued else NODE, "n", "")
    paths = {
        giving_back.QUEUED: f"{PARENT}/queuedResources/q?force=true",
        giving_back.NODE: f"{PARENT}/nodes/n",
    }
    assert service.deletions == [paths[what] for what in case.asked]


@pytest.mark.parametrize(
    ("name", "answers", "said"),
    [
        (QUEUED, [200], f"deletes {QUEUED}"),
        (QUEUED, [404, 200], f"deletes {NODE}"),
        (QUEUED, [403, 200], f"deletes {NODE} alone, as it does not delete {QUEUED}: .*403"),
        (QUEUED, [404, 404], "knows neither"),
        (NODE, [404], "knows neither"),
    ],
)
def test_it_says_what_the_service_answered(
    service: Service, name: str, answers: list[int], said: str
) -> None:
    service.answers = answers
    assert re.search(said, own_tpu.delete(name, "n", ""))


@pytest.mark.parametrize("answers", [[403, 404], [404, 403], [403, 403]])
def test_a_refusal_is_an_error(service: Service, answers: list[int]) -> None:
    service.answers = answers
    with pytest.raises(urllib.error.HTTPError, match="403"):
        own_tpu.delete(QUEUED, "n", "")


def test_a_vm_without_an_account_is_told_so(service: Service) -> None:
    service.token = None
    with pytest.raises(OSError, match=r"no service account; set tpu\.service_account"):
        own_tpu.delete(QUEUED, "n", "")


def test_an_emulator_does_not_speak_rest(service: Service) -> None:
    with pytest.raises(ImportError):
        own_tpu.delete(QUEUED, "n", "unix:/nowhere")
    assert service.deletions == []
