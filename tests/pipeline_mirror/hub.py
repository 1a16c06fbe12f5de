"""A stand-in of the Hugging Face Hub: what its library asks of it to keep a model's repository.

It keeps commits, branches, tags and large files as the Hub does, refuses wrong metadata of a card,
and takes one token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.serving import serving

TOKEN = "hf_ThisIsTheSecretOfTheTest"  # noqa: S105
LICENSES = {"apache-2.0", "mit", "cc-by-4.0", "other"}
LARGE = (".safetensors", "weights")


@dataclass
class Commit:
    """What a commit has: content by path, of large files their hash."""

    files: dict[str, bytes]
    title: str
    text: str
    parent: str | None


@dataclass
class Repository:
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def add(self, branch: str, commit: Commit) -> str:
        oid = _sha1(f"{len(self.commits)} {commit}".encode())
        self.commits[oid] = commit
        self.branches[branch] = oid
        return oid

    def at(self, revision: str) -> Commit | None:
        found = self.branches.get(revision) or self.tags.get(revision) or revision
        return self.commits.get(found)

    def history(self, branch: str = "main") -> list[str]:
        """Return titles of a branch's commits, newest first."""
        titles, commit = [], self.at(branch)
        while commit is not None:
            titles.append(commit.title)
            commit = self.commits.get(commit.parent or "")
        return titles


class Hub(ThreadingHTTPServer):
    """The stand-in.

    :ivar asked: each request: method and path.
    :ivar broken: paths with this in them are answered by 503.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.uploads: list[str] = []
        self.broken = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def files(self, name: str, revision: str) -> dict[str, bytes]:
        """Return content by path, large files with theirs."""
        commit = self.repositories[name].at(revision)
        assert commit is not None
        return {path: self.content(data) for path, data in commit.files.items()}

    def content(self, data: bytes) -> bytes:
        found = re.fullmatch(rb"oid sha256:([0-9a-f]{64})", data)
        return self.large[found[1].decode()] if found else data


@contextmanager
def hub_running() -> Iterator[Hub]:
    with serving(Hub()) as hub:
        yield hub


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _oid(data: bytes | None) -> str | None:
    """Return what git, or the store of large files, calls a file."""
    if data is None:
        return None
    found = re.fullmatch(rb"oid sha256:([0-9a-f]{64})", data)
    return found[1].decode() if found else _sha1(b"blob %d\0" % len(data) + data)


def problem_of(card: str) -> str:
    """Return what is wrong with a card's metadata, as the Hub says it; empty: nothing."""
    found = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    if not found:
        return "empty or missing yaml metadata in repo card"
    data = yaml.safe_load(found[1])
    if data.get("license", "other") not in LICENSES:
        return f'"license" must be one of [{", ".join(sorted(LICENSES))}]'
    for model in data.get("model-index", []):
        for result in model["results"]:
            if not {"task", "dataset", "metrics"} <= result.keys():
                return '"model-index[0].results[0]" is incomplete'
            if not {"name", "type"} <= result["dataset"].keys():
                return '"dataset" needs a name and a type'
    return ""


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self._body = self.rfile.read(size) if size else b""
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        if self.server.broken and self.server.broken in path:
            self._send(503, {"error": "maintenance"})
        elif path.startswith("/large/"):
            self._upload(path)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"error": "Invalid username or password."})
        else:
            self._route(path)

    def _route(self, path: str) -> None:
        routes = {
            r"/api/validate-yaml": self._validate,
            r"/api/repos/create": self._create,
            r"/api/models/([^/]+/[^/]+)/refs": self._refs,
            r"/api/models/([^/]+/[^/]+)/revision/([^/]+)": self._revision,
            r"/api/models/([^/]+/[^/]+)/tree/([^/]+)": self._tree,
            r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)": self._preupload,
            r"/api/models/([^/]+/[^/]+)/commit/([^/]+)": self._commit,
            r"/api/models/([^/]+/[^/]+)/branch/([^/]+)": self._branch,
            r"/api/models/([^/]+/[^/]+)/tag/([^/]+)": self._tag,
            r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch": self._batch,
            r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)": self._resolve,
        }
        for pattern, answer in routes.items():
            if found := re.fullmatch(pattern, path):
                groups = list(found.groups())
                if groups and groups[0] not in self.server.repositories:
                    self._send(404, {"error": "Repository not found"}, code="RepoNotFound")
                else:
                    answer(*groups)
                return
        self._send(404, {"error": f"no such page: {path}"})

    @property
    def _json(self) -> Any:
        return json.loads(self._body)

    def _validate(self) -> None:
        problem = problem_of(self._json["content"])
        errors = [{"message": problem}] if problem else []
        self._send(400 if problem else 200, {"errors": errors, "warnings": []})

    def _create(self) -> None:
        asked = self._json
        name = f"{asked['organization']}/{asked['name']}"
        private = asked.get("visibility") == "private" or asked.get("private") is True
        repository = self.server.repositories.setdefault(name, Repository(private))
        if not repository.commits:
            first = Commit(
                {".gitattributes": b"*.safetensors filter=lfs"}, "initial commit", "", None
            )
            repository.add("main", first)
        self._send(200, {"url": f"{self.server.address}/{name}", "name": name, "id": "1"})

    def _refs(self, name: str) -> None:
        repository = self.server.repositories[name]

        def listed(kind: str, refs: dict[str, str]) -> list[dict[str, str]]:
            return [
                {"name": one, "ref": f"refs/{kind}/{one}", "targetCommit": oid}
                for one, oid in refs.items()
            ]

        branches, tags = listed("heads", repository.branches), listed("tags", repository.tags)
        self._send(200, {"branches": branches, "tags": tags, "converts": []})

    def _revision(self, name: str, revision: str) -> None:
        oid = self.server.repositories[name].branches[revision]
        self._send(200, {"id": name, "modelId": name, "sha": oid, "siblings": []})

    def _tree(self, name: str, revision: str) -> None:
        files = self.server.files(name, revision)
        self._send(
            200,
            [
                {"type": "file", "path": path, "size": len(data), "oid": "0" * 40}
                for path, data in files.items()
            ],
        )

    def _preupload(self, name: str, revision: str) -> None:
        commit = self.server.repositories[name].at(revision)
        assert commit is not None
        found = [
            {
                "oid": _oid(commit.files.get(one["path"])),
                "path": one["path"],
                "uploadMode": "lfs" if one["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            for one in self._json["files"]
        ]
        self._send(200, {"files": found})

    def _batch(self, name: str) -> None:
        objects = []
        for one in self._json["objects"]:
            entry: dict[str, Any] = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.server.large:
                # Signed, as addresses of the real store are.
                href = f"{self.server.address}/large/{one['oid']}?signature=secret-signature"
                entry["actions"] = {"upload": {"href": href, "header": {}}}
            objects.append(entry)
        self._send(200, {"transfer": "basic", "objects": objects})

    def _upload(self, path: str) -> None:
        oid = path.removeprefix("/large/")
        assert parse_qs(urlsplit(self.path).query) == {"signature": ["secret-signature"]}
        assert hashlib.sha256(self._body).hexdigest() == oid
        self.server.large[oid] = self._body
        self.server.uploads.append(oid)
        self._send(200, {})

    def _commit(self, name: str, revision: str) -> None:
        repository = self.server.repositories[name]
        lines = [json.loads(line) for line in self._body.splitlines()]
        [header] = [line["value"] for line in lines if line["key"] == "header"]
        head = repository.branches[revision]
        if header.get("parentCommit", head) != head:
            self._send(412, {"error": "A commit has happened since. Please refresh and try again."})
            return
        files = dict(repository.commits[head].files)
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                assert value["oid"] in self.server.large
                files[value["path"]] = f"oid sha256:{value['oid']}".encode()
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        made = Commit(files, header["summary"], header["description"], head)
        oid = repository.add(revision, made)
        self._send(
            200, {"commitUrl": f"{self.server.address}/{name}/commit/{oid}", "commitOid": oid}
        )

    def _branch(self, name: str, branch: str) -> None:
        repository = self.server.repositories[name]
        repository.branches.setdefault(branch, repository.branches["main"])
        self._send(200, {})

    def _tag(self, name: str, revision: str) -> None:
        repository, asked = self.server.repositories[name], self._json
        if asked["tag"] in repository.tags:
            self._send(409, {"error": "tag exists"})
            return
        assert revision in repository.commits
        repository.tags[asked["tag"]] = revision
        self._send(200, {})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self.server.repositories[name]
        commit = repository.at(revision)
        assert commit is not None
        if path not in commit.files:
            self._send(404, {"error": "Entry not found"}, code="EntryNotFound")
            return
        data = self.server.content(commit.files[path])
        oid = next(key for key, value in repository.commits.items() if value is commit)
        self._send(
            200,
            data,
            headers={"X-Repo-Commit": oid, "ETag": f'"{_sha1(data)}"'},
        )

    def _send(
        self, status: int, content: Any, *, code: str = "", headers: dict[str, str] | None = None
    ) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if code:
            self.send_header("X-Error-Code", code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
