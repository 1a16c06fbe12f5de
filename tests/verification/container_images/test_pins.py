"""Images by digest, asked of a registry that speaks the OCI distribution API."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from verification.container_images import pins
from verification.container_images.catalogue import DOCKER
from verification.container_images.commands import ImageError
from verification.container_images.pins import Reference

REGISTRIES = ("docker.io", "gcr.io")


class Registry(BaseHTTPRequestHandler):
    """Knows every image but ``private``, and gives manifests to those who fetched a token."""

    states = ""

    def do_GET(self) -> None:
        if self.path.startswith("/token?service=here&scope=repository%3A"):
            self._answer(200, json.dumps({"token": "t0"}).encode())
        elif self.headers.get("Authorization") != "Bearer t0":
            host = self.headers["Host"]
            challenge = f'Bearer realm="http://{host}/token",service="here"'
            self._answer(401, b"", **{"WWW-Authenticate": challenge})
        elif "/private/" in self.path or "index" not in self.headers["Accept"]:
            self._answer(404, b"")
        else:
            body = self.path.encode()
            digest = self.states or f"sha256:{hashlib.sha256(body).hexdigest()}"
            self._answer(200, body, **{"Docker-Content-Digest": digest})

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(handler: type[Registry]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def registry() -> Iterator[str]:
    with serving(Registry) as url:
        yield url


def digest_of(repository: str, tag: str) -> str:
    return f"sha256:{hashlib.sha256(f'/v2/{repository}/manifests/{tag}'.encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("postgres:17.6", "docker.io", "library/postgres", "17.6"),
        ("docker.io/library/debian:12@sha256:" + "0" * 64, "docker.io", "library/debian", "12"),
        ("apache/beam:2.77.0", "docker.io", "apache/beam", "2.77.0"),
        ("gcr.io/cloud-builders/docker", "gcr.io", "cloud-builders/docker", "latest"),
        ("localhost:5000/a", "localhost:5000", "a", "latest"),
    ],
)
def test_names_are_read_as_an_engine_reads_them(
    text: str, registry: str, repository: str, tag: str
) -> None:
    found = Reference.parse(text)
    assert (found.registry, found.repository, found.tag) == (registry, repository, tag)


def test_what_names_no_image_is_refused() -> None:
    for text in ("Postgres:1", "a@sha256:123", "a b"):
        with pytest.raises(ImageError, match="names no image"):
            Reference.parse(text)


def test_pinning_writes_digests_and_nothing_else(registry: str, tmp_path: Path) -> None:
    folder = tmp_path / "docker"
    shutil.copytree(DOCKER, folder)
    before = {path: path.read_text() for path in pins.named_images(folder)}
    mirrors = [word for name in REGISTRIES for word in ("--mirror", f"{name}={registry}")]
    assert pins.main(["--folder", str(folder), *mirrors]) == 0
    for path, images in pins.named_images(folder).items():
        text = path.read_text()
        for image in images:
            found = Reference.parse(image)
            assert found.digest == digest_of(found.repository, found.tag)
            text = text.replace(f"@{found.digest}", "")
        assert text == re.sub(r"@sha256:[0-9a-f]{64}$", "", before[path], flags=re.MULTILINE)
    assert pins.main(["--folder", str(folder), "--check"]) == 0


def test_all_foreign_images_are_found() -> None:
    found = {
        Reference.parse(image).written for many in pins.named_images().values() for image in many
    }
    names = {name.rpartition("/")[2].partition(":")[0] for name in found}
    built = {"debian", "beam_python3.11_sdk", "python", "docker"}
    assert names == built | {"postgres", "prometheus", "alertmanager"}


def test_an_image_without_a_digest_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "a.Dockerfile").write_text("ARG BASE=debian:12\nFROM ${BASE}\n")
    assert pins.main(["--folder", str(tmp_path / "docker"), "--check"]) == 1
    said = capsys.readouterr().err
    assert "docker/a.Dockerfile: debian:12 has no digest" in said
    assert "make pin-images" in said


def test_what_a_registry_does_not_know_stays_and_is_named(
    registry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docker").mkdir()
    file = tmp_path / "docker" / "a.Dockerfile"
    file.write_text("ARG BASE=debian:12\nARG OTHER_IMAGE=private/it:1\n")
    words = ["--folder", str(tmp_path / "docker"), "--mirror", f"docker.io={registry}"]
    assert pins.main(words) == 1
    assert file.read_text() == (
        f"ARG BASE=debian:12@{digest_of('library/debian', '12')}\nARG OTHER_IMAGE=private/it:1\n"
    )
    said = capsys.readouterr().err
    assert "private/it:1" in said
    assert "404" in said
    assert "--mirror" in said


def test_a_registry_that_is_not_there_is_named() -> None:
    with pytest.raises(ImageError, match=r"debian:12: http://127\.0\.0\.1:9.*does not tell"):
        pins.resolve("debian:12", {"docker.io": "http://127.0.0.1:9"})


def test_a_registry_that_contradicts_itself_is_not_believed() -> None:
    class Lying(Registry):
        states = f"sha256:{'1' * 64}"

    with serving(Lying) as url, pytest.raises(ImageError, match="and what it sends is"):
        pins.resolve("debian:12", {"docker.io": url})
