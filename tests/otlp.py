"""A receiver of OpenTelemetry's traces by HTTP, which keeps what it gets."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.serving import serving


@dataclass(frozen=True)
class Received:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    is_error: bool
    service: str

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return (self.end - self.start) / 1e9


@dataclass
class Receiver:
    """What has arrived, request by request.

    :ivar status: what is answered.
    """

    endpoint: str
    requests: list[list[Received]] = field(default_factory=list)
    status: int = 200

    @property
    def spans(self) -> dict[str, Received]:
        """Return all spans by id; of one that came twice the later."""
        return {span.span_id: span for spans in self.requests for span in spans}


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Serve a receiver as long as the context lasts."""
    found: Receiver

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if found.status == 200:
                found.requests.append(_spans(ExportTraceServiceRequest.FromString(body)))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_port}")
    with serving(server):
        yield found


def _spans(request: ExportTraceServiceRequest) -> list[Received]:
    return [
        Received(
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes=_values(span.attributes),
            is_error=span.status.code == span.status.STATUS_CODE_ERROR,
            service=_values(resource.resource.attributes)["service.name"],
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in attributes}
