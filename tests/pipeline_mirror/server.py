"""A real MLflow server, and the mirror as people run it: both in the environment of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from local.stack.ports import choose

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-mlflow" / "bin" / "python"
PATIENCE = 900.0


def why_not() -> str:
    """Return what this machine lacks; empty: nothing."""
    return "" if PYTHON.exists() else "no .venv-mlflow here: make mlflow-check makes it"


@dataclass
class MlflowProcess:
    """A server with a database in a folder; it can be away and come back.

    :ivar passes: a process of ``passes.py``.
    """

    folder: Path
    port: int = field(default_factory=lambda: choose(("mlflow",), {})["mlflow"])
    process: subprocess.Popen[bytes] | None = None
    passes: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        words += ["--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"]
        words += ["--artifacts-destination", str(self.folder / "artifacts")]
        log = (self.folder / "mlflow.log").open("ab")
        self.process = subprocess.Popen(
            [str(PYTHON), "-m", "mlflow", *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=_environment(),
        )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                requests.get(f"{self.address}/health", timeout=5).raise_for_status()
            except requests.RequestException:
                time.sleep(0.3)
            else:
                return
        raise AssertionError((self.folder / "mlflow.log").read_text()[-3000:])

    def stop(self) -> None:
        """End it and its workers."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def get(self, path: str, **query: str) -> Any:
        """Return the answer of its REST API."""
        answer = requests.get(f"{self.address}/api/2.0/mlflow/{path}", params=query, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, **content: Any) -> Any:
        """Ask it by its REST API."""
        answer = requests.post(f"{self.address}/api/2.0/mlflow/{path}", json=content, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def mirror(self, store: str, prefix: str) -> tuple[int, str]:
        """Make a pass, and return its exit code and what it said."""
        if self.passes is None:
            self.passes = subprocess.Popen(
                [str(PYTHON), str(Path(__file__).with_name("passes.py"))],
                cwd=ROOT,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.passes.stdin
        assert self.passes.stdout
        settings = {"MLFLOW_TRACKING_URI": self.address, "REPRETRAIN_MLFLOW_PREFIX": prefix}
        wanted = {"arguments": ["mlflow", "--store", store], "settings": settings}
        self.passes.stdin.write(json.dumps(wanted) + "\n")
        self.passes.stdin.flush()
        done = json.loads(self.passes.stdout.readline())
        return done["code"], done["said"]

    def command(self, store: str) -> subprocess.CompletedProcess[str]:
        """Make a pass by the command, as people do."""
        return subprocess.run(
            [str(PYTHON), "-m", "pipeline_mirror", "mlflow", "--store", store],
            cwd=ROOT,
            env=_environment() | {"MLFLOW_TRACKING_URI": self.address},
            capture_output=True,
            text=True,
            check=False,
        )


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REPRETRAIN_")}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        # An outage is known at once.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    }


@contextmanager
def serving(folder: Path) -> Iterator[MlflowProcess]:
    """Run a server for so long."""
    server = MlflowProcess(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        if server.passes is not None:
            server.passes.kill()
            server.passes.wait()
