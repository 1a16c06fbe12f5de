"""A mail server and a web endpoint that keep what they get."""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from tests.serving import free_ports, serving


@dataclass
class Mailbox:
    """What a mail server got: letters with their recipients."""

    port: int
    letters: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        letter = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(letter, EmailMessage)
        self.letters.append(letter)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 OK"

    @property
    def subjects(self) -> list[str]:
        return [str(letter["Subject"]) for letter in self.letters]

    def part(self, kind: str, letter: int = 0) -> str:
        """Return the text of a letter, ``plain`` or ``html``."""
        body = self.letters[letter].get_body((kind,))
        assert body is not None
        content = body.get_content()
        assert isinstance(content, str)
        return content

    def connection(self, **extra: Any) -> str:
        """Return an Airflow connection to the server, as JSON."""
        fields = {
            "conn_type": "smtp",
            "host": "127.0.0.1",
            "port": self.port,
            "login": "",
            "password": "",
            "extra": {
                "from_email": "pipeline@example.com",
                "to": "ann@example.com, bob@example.com",
                "disable_ssl": True,
                "disable_tls": True,
                "timeout": 10,
                "retry_limit": 0,
                **extra,
            },
        }
        return json.dumps(fields)


@contextmanager
def mail_server(port: int | None = None) -> Iterator[Mailbox]:
    mailbox = Mailbox(port or free_ports(1)[0])
    controller = Controller(mailbox, hostname="127.0.0.1", port=mailbox.port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()


@dataclass(frozen=True)
class Request:
    """One POST."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Endpoint:
    """What a web endpoint got, and how it answers."""

    port: int
    requests: list[Request] = field(default_factory=list)
    status: int = 200
    answer: bytes = b"ok"

    @property
    def ids(self) -> list[str]:
        return [str(request.body["id"]) for request in self.requests]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connection(self, path: str = "/alerts", **extra: Any) -> str:
        """Return an Airflow connection of type http to it, as JSON."""
        return json.dumps({"conn_type": "http", "host": f"{self.url}{path}", "extra": extra})

    def slack_connection(self, token: str) -> str:
        """Return an Airflow connection to it as if it were Slack, as JSON."""
        fields = {"conn_type": "slackwebhook", "host": f"{self.url}/services", "password": token}
        return json.dumps(fields)


@contextmanager
def web_endpoint(port: int = 0) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.requests.append(Request(self.path, dict(self.headers), json.loads(data)))
            self.send_response(endpoint.status)
            if 300 <= endpoint.status < 400:
                self.send_header("Location", endpoint.url)
            self.send_header("Content-Length", str(len(endpoint.answer)))
            self.end_headers()
            self.wfile.write(endpoint.answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the tests quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    endpoint = Endpoint(server.server_address[1])
    with serving(server):
        yield endpoint
