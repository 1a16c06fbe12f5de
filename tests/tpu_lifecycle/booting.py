"""A machine that boots a node's startup script, and the metadata server that it asks."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from pipeline_store.formats import AgentHello
from tests.tpu_agent import giving_back
from tests.tpu_agent.world import JOB_KEY, TOKEN, World, wait_for
from tpu_agent import processes
from tpu_lifecycle.boot import launcher

INSTANCE = "/computeMetadata/v1/instance/"
TPU_NAME = "projects/p/locations/z/queuedResources/bert-g1-a1"
NODE_PATH = "/v2/projects/p/locations/z/nodes/bert-g1-a1"
QUEUED_PATH = f"/v2/{TPU_NAME}?force=true"
OWN_NODE_PATH = "/v2/projects/p/locations/z/nodes/{node}"
PATHS = {giving_back.QUEUED: QUEUED_PATH, giving_back.NODE: NODE_PATH}


def deletions(server: http.server.ThreadingHTTPServer, *paths: str) -> str:
    """Return the node's attribute that lets it ask this server for its deletion."""
    return "\n".join(f"http://127.0.0.1:{server.server_port}{path}" for path in paths)


class MetadataServer(http.server.ThreadingHTTPServer):
    """Serves values by path below ``instance/``, and files for whoever shows the token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.values: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.deletions: list[str] = []
        self.answers: list[int] = []
        self.failures = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    server: MetadataServer

    def do_GET(self) -> None:
        code, body = self._answer()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self) -> None:
        assert self.headers["Authorization"] == "Bearer vm-token"
        assert self.headers["User-Agent"] == "bert-repretraining/vm"
        self.server.deletions.append(self.path)
        self.send_response(self.server.answers.pop(0))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self) -> tuple[int, bytes]:
        if self.server.failures:
            self.server.failures -= 1
            return 503, b""
        if self.path in self.server.files:
            allowed = self.headers["Authorization"] == "Bearer vm-token"
            return (200, self.server.files[self.path]) if allowed else (401, b"")
        if self.path.startswith("/storage/"):
            return 404, b""
        if self.headers["Metadata-Flavor"] != "Google":
            return 403, b""
        value = self.server.values.get(self.path.removeprefix(INSTANCE))
        return (404, b"") if value is None else (200, value.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def kill(found: Iterable[psutil.Process]) -> None:
    """Kill processes, of which some may have ended since they were found."""
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


class Vm:
    """A machine that boots the node's startup script in its own folder."""

    def __init__(
        self,
        world: World,
        server: MetadataServer,
        container_image: str | None = None,
        path: str = f"{Path(sys.executable).parent}:/usr/bin:/bin",
    ) -> None:
        self.world = world
        self.server = server
        self.path = path
        self.folder = world.root / "vm"
        self.folder.mkdir()
        self.boots: list[subprocess.Popen[bytes]] = []
        self.set(launcher.boot_metadata(
            mailbox_uri=world.mailbox.root,
            released_uri=world.reservation.released,
            bundle_uri=world.bundle.uri,
            bundle_sha256=world.bundle.sha256,
            token=TOKEN,
            job_key=JOB_KEY,
            expires_at=world.expires_at,
            heartbeat_interval_seconds=0.1,
            tpu_name=TPU_NAME,
            tpu_api_endpoint="unix:/nowhere",
            tpu_deletions=[],
            lease_timeout_seconds=7200.0,
            container_image=container_image,
        ))  # fmt: skip

    def set(self, attributes: dict[str, str]) -> None:
        self.server.values.update({f"attributes/{k}": v for k, v in attributes.items()})

    def boot(self) -> subprocess.Popen[bytes]:
        script = self.folder / "startup-script"
        script.write_text(self.server.values["attributes/startup-script"])
        script.chmod(0o700)
        with (self.folder / "serial.log").open("ab") as log:
            process = subprocess.Popen(
                [script],
                cwd=self.folder,
                env={
                    "PATH": self.path,
                    "GCE_METADATA_HOST": f"127.0.0.1:{self.server.server_port}",
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.boots.append(process)
        return process

    @property
    def log(self) -> str:
        return (self.folder / "serial.log").read_text()

    @property
    def work_dir(self) -> Path:
        return self.folder / "tpu-agent/agent"

    def power_off(self) -> None:
        for boot_script in self.boots:
            boot_script.kill()
            boot_script.wait()
        wait_for("the end of all processes", self._has_ended)
        processes.kill(self.work_dir)

    def _has_ended(self) -> bool:
        # Looked for anew: one that was found may have started another before it was killed.
        found = self.orphans()
        kill(found)
        return not found

    def orphans(self) -> list[psutil.Process]:
        """Return agents and switches, also those that no boot script keeps alive any more."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(self.work_dir) in process.cmdline():
                    found.append(process)
        return found

    def child(self, module: str) -> psutil.Process | None:
        """Return the process that the boot script keeps alive, if it runs just now."""
        for process in psutil.Process(self.boots[-1].pid).children():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[1:3] == ["-m", module]:
                    return process
        return None

    def hello(self, worker: int = 0, starts: int = 1) -> AgentHello:
        def probe() -> AgentHello | None:
            found = AgentHello.load_or_none(self.world.mailbox.hello(worker))
            return found if found and found.starts >= starts else None

        hello: AgentHello = wait_for(f"hello {starts}", probe)
        return hello
