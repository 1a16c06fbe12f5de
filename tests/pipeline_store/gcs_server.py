"""A small Cloud Storage server for tests: objects in memory, generations, preconditions.

It answers the requests of the unmodified google-cloud-storage client when ``STORAGE_EMULATOR_HOST``
points at it. Unlike the emulators that can be installed it enforces ``ifGenerationMatch`` and can
lose replies, which is what the store's promises depend on.

Source: https://cloud.google.com/storage/docs/json_api/v1
"""

from __future__ import annotations

import base64
import contextlib
import email.parser
import itertools
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import google_crc32c

from tests.serving import serving

PAGE_SIZE = 7


@dataclass(frozen=True)
class StoredObject:
    """One generation of an object."""

    data: bytes
    generation: int
    metadata: dict[str, str]
    updated: datetime


@dataclass
class Upload:
    """An upload that has begun. Once it is finished it says the same to whoever asks again."""

    bucket: str
    name: str
    precondition: str | None
    metadata: dict[str, str]
    data: bytes = b""
    is_finished: bool = False
    stored: StoredObject | None = None


@dataclass
class GcsState:
    """What the server holds. ``replies_to_lose`` writes are done but answered with an error.

    ``denied`` are rights that it says the caller does not have; it does not refuse anything.
    """

    locations: dict[str, str] = field(default_factory=lambda: {"bucket": "US-CENTRAL1"})
    objects: dict[tuple[str, str], StoredObject] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    replies_to_lose: int = 0
    denied: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1001))

    def put(
        self, bucket: str, name: str, data: bytes, precondition: str | None, metadata: dict
    ) -> StoredObject | None:
        """Store a new generation; None when the precondition does not hold."""
        with self.lock:
            found = self.objects.get((bucket, name))
            if precondition is not None and int(precondition) != (found.generation if found else 0):
                return None
            stored = StoredObject(data, next(self.numbers), metadata, datetime.now(UTC))
            self.objects[bucket, name] = stored
            return stored


class Handler(BaseHTTPRequestHandler):
    """One request of the JSON API."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    disable_nagle_algorithm = True
    server: GcsServer

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the tests quiet."""

    def do_GET(self) -> None:
        parts, query = self._route()
        if len(parts) == 2:
            self._bucket(parts[1])
        elif len(parts) == 3:
            self._list(parts[1], query)
        elif parts[2] == "iam":
            self._rights(parts[1])
        elif query.get("alt") == "media":
            self._download(parts[1], parts[3])
        else:
            self._metadata(parts[1], parts[3])

    def do_DELETE(self) -> None:
        parts, _ = self._route()
        with self.state.lock:
            found = self.state.objects.pop((parts[1], parts[3]), None)
        self._reply(404 if found is None else 204)

    def do_POST(self) -> None:
        parts, query = self._route()
        body = self._body()
        precondition = query.get("ifGenerationMatch")
        if query["uploadType"] == "resumable":
            info = json.loads(body or b"{}")
            name = query.get("name") or info["name"]
            upload = Upload(parts[1], name, precondition, info.get("metadata") or {})
            key = str(next(self.state.numbers))
            self.state.uploads[key] = upload
            host = self.headers["Host"]
            location = f"http://{host}/upload/storage/v1/b/{parts[1]}/o?upload_id={key}"
            self._reply(200, headers={"Location": location})
            return
        info, data = self._multipart(body)
        self._finish(Upload(parts[1], info["name"], precondition, info.get("metadata") or {}, data))

    def do_PUT(self) -> None:
        _, query = self._route()
        upload = self.state.uploads[query["upload_id"]]
        body = self._body()
        span, _, total = self.headers["Content-Range"].removeprefix("bytes ").partition("/")
        if not upload.is_finished:
            # What is sent again comes from where it came the first time.
            upload.data = upload.data[: int(span.partition("-")[0])] + body
        if total == "*" or int(total) != len(upload.data):
            assert span != "*"
            self._reply(308, headers={"Range": f"bytes=0-{len(upload.data) - 1}"})
            return
        self._finish(upload)

    @property
    def state(self) -> GcsState:
        return self.server.state

    def _route(self) -> tuple[list[str], dict[str, str]]:
        """Return (["b", bucket, "o", name], query), or ["b", bucket] for a bucket."""
        url = urllib.parse.urlsplit(self.path)
        path = url.path.split("/storage/v1/", 1)[1]
        pieces = path.split("/", 3)
        return [urllib.parse.unquote(p) for p in pieces], dict(urllib.parse.parse_qsl(url.query))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _multipart(self, body: bytes) -> tuple[dict[str, Any], bytes]:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        boundary = email.parser.BytesParser().parsebytes(head).get_boundary()
        assert boundary is not None
        _, info, data, _ = body.split(b"--" + boundary.encode())
        _, _, info = info.partition(b"\r\n\r\n")
        _, _, data = data.partition(b"\r\n\r\n")
        return json.loads(info), data.removesuffix(b"\r\n")

    def _finish(self, upload: Upload) -> None:
        if not upload.is_finished:
            upload.stored = self.state.put(
                upload.bucket, upload.name, upload.data, upload.precondition, upload.metadata
            )
            upload.is_finished = True
        stored = upload.stored
        with self.state.lock:
            lose = self.state.replies_to_lose > 0
            self.state.replies_to_lose -= lose
        if lose:
            self._reply(503)
        elif stored is None:
            self._reply(412, {"error": {"code": 412, "message": "conditionNotMet"}})
        else:
            self._reply(200, self._resource(upload.bucket, upload.name, stored))

    def _resource(self, bucket: str, name: str, stored: StoredObject) -> dict[str, Any]:
        return {
            "bucket": bucket,
            "name": name,
            "generation": str(stored.generation),
            "size": str(len(stored.data)),
            "metadata": stored.metadata,
            "updated": stored.updated.isoformat().replace("+00:00", "Z"),
            "crc32c": _crc32c(stored.data),
        }

    def _bucket(self, bucket: str) -> None:
        location = self.state.locations.get(bucket)
        body = {"name": bucket, "location": location}
        self._reply(404 if location is None else 200, body)

    def _rights(self, bucket: str) -> None:
        """Answer testIamPermissions: of the rights asked for those that are not denied."""
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["permissions"]
        held = [right for right in asked if right not in self.state.denied]
        known = bucket in self.state.locations
        # As the service does: without any of them the answer has no list.
        self._reply(200 if known else 404, {"permissions": held} if held and known else {})

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        with self.state.lock:
            found = sorted(
                (name, stored)
                for (inside, name), stored in self.state.objects.items()
                if inside == bucket
                and name.startswith(query.get("prefix", ""))
                and _matches(name, query.get("matchGlob"))
            )
        start = int(query.get("pageToken", 0))
        page = found[start : start + PAGE_SIZE]
        body: dict[str, Any] = {"items": [self._resource(bucket, *item) for item in page]}
        if start + PAGE_SIZE < len(found):
            body["nextPageToken"] = str(start + PAGE_SIZE)
        self._reply(200, body)

    def _metadata(self, bucket: str, name: str) -> None:
        stored = self.state.objects.get((bucket, name))
        if stored is None:
            self._reply(404, {"error": {"code": 404, "message": "No such object"}})
        else:
            self._reply(200, self._resource(bucket, name, stored))

    def _download(self, bucket: str, name: str) -> None:
        stored = self.state.objects.get((bucket, name))
        if stored is None:
            self._reply(404, {"error": {"code": 404, "message": "No such object"}})
            return
        headers = {
            "X-Goog-Generation": str(stored.generation),
            "X-Goog-Hash": f"crc32c={_crc32c(stored.data)}",
        }
        data, span = stored.data, self.headers.get("Range")
        if span is None:
            self._reply(200, data, headers)
            return
        first, _, last = span.removeprefix("bytes=").partition("-")
        begin, end = int(first), min(int(last or len(data)), len(data) - 1)
        if begin >= len(data):
            self._reply(416)
            return
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(data)}"
        self._reply(206, data[begin : end + 1], headers)

    def _reply(
        self, status: int, body: dict | bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        self.send_response(status)
        for key, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(key, value)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if status != 204:
            self.wfile.write(data)


def _matches(name: str, pattern: str | None) -> bool:
    """Return whether an object is picked out by ``matchGlob``, as far as the store uses it."""
    if pattern is None:
        return True
    signs = {"*": "[^/]*", "{": "(", "}": ")", ",": "|"}
    tokens = re.findall(r"\\.|.", pattern)
    expression = "".join(signs.get(token) or re.escape(token[-1]) for token in tokens)
    return re.fullmatch(expression, name) is not None


class GcsServer(ThreadingHTTPServer):
    """The server on a free loopback port."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.state = GcsState()

    @property
    def url(self) -> str:
        """Value for ``STORAGE_EMULATOR_HOST``."""
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def running() -> Iterator[GcsServer]:
    """Serve while the context lasts."""
    with serving(GcsServer()) as server:
        yield server


def _crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
