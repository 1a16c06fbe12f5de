"""How a TPU VM asks a service for its own deletion, by the requests that it was created with."""

from __future__ import annotations

import contextlib
import http.server
import urllib.error
from collections.abc import Iterator

import pytest

from tests.serving import serving
from tests.tpu_agent import giving_back
from tpu_agent import own_tpu

QUEUED = "projects/p/locations/z/queuedResources/q"
QUEUED_PATH = f"/v2/{QUEUED}?force=true"
NODE_PATH = "/v2/projects/p/locations/z/nodes/n"
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
        yield service


def delete(service: Service, *, is_queued: bool = True) -> str:
    """Delete as a VM would; answers name paths instead of addresses."""
    address = f"http://127.0.0.1:{service.server_port}"
    urls = [f"{address}{path}" for path in ([QUEUED_PATH] if is_queued else []) + [NODE_PATH]]
    return own_tpu.delete(QUEUED, "n", urls, "").replace(address, "")


@pytest.mark.parametrize("case", giving_back.CASES, ids=str)
def test_requests_are_sent_until_one_is_accepted(service: Service, case: giving_back.Case) -> None:
    service.answers = list(case.answers)
    with contextlib.suppress(urllib.error.HTTPError):
        delete(service, is_queued=case.is_queued)
    paths = {giving_back.QUEUED: QUEUED_PATH, giving_back.NODE: NODE_PATH}
    assert service.deletions == [paths[what] for what in case.asked]


@pytest.mark.parametrize(
    ("is_queued", "answers", "said"),
    [
        (True, [200], f"deletes {QUEUED_PATH}"),
        (True, [404, 200], f"deletes {NODE_PATH}"),
        (True, [403, 200], f"deletes {NODE_PATH} alone, as it does not delete {QUEUED_PATH}: "),
        (True, [404, 404], f"knows none of {QUEUED_PATH}, {NODE_PATH}"),
        (False, [404], f"knows none of {NODE_PATH}"),
    ],
)
def test_it_says_what_the_service_answered(
    service: Service, is_queued: bool, answers: list[int], said: str
) -> None:
    service.answers = answers
    assert said in delete(service, is_queued=is_queued)


@pytest.mark.parametrize("answers", [[403, 404], [404, 403], [403, 403]])
def test_a_refusal_is_an_error(service: Service, answers: list[int]) -> None:
    service.answers = answers
    with pytest.raises(urllib.error.HTTPError, match="403"):
        delete(service)


def test_a_vm_without_an_account_is_told_so(service: Service) -> None:
    service.token = None
    with pytest.raises(OSError, match=r"no service account; set tpu\.service_account"):
        delete(service)


def test_a_vm_that_was_told_no_request_says_so() -> None:
    with pytest.raises(OSError, match=r"nothing in the metadata of .* says how"):
        own_tpu.delete(QUEUED, "n", [], "")
