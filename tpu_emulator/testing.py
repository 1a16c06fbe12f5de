"""Runs an emulator as a subprocess for tests of code that talks to the Cloud TPU API."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc

from tpu_emulator import config, processes
from tpu_emulator.admin import AdminClient

ZONE = "us-central1-a"
"""A zone that offers v5litepod, v5p and v3 slices."""

_REPOSITORY = Path(__file__).resolve().parent.parent
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_FAST = {
    "accept_delay": 0.05,
    "provision_delay": 0.05,
    "boot_delay": 0.05,
    "delete_delay": 0.05,
    "suspend_delay": 0.05,
    "vm_grace": 2.0,
}

Result = TypeVar("Result")


@dataclass
class RunningEmulator:
    """An emulator process; `start` and the `stop...` methods restart it on the same state."""

    socket: Path
    state_dir: Path
    project: str
    admin: AdminClient
    log: Path
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The gRPC target of the API, `unix:<path>`."""
        return f"unix:{self.socket}"

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    def parent(self, zone: str = ZONE) -> str:
        """The parent of resources in a zone, `projects/P/locations/Z`."""
        return f"projects/{self.project}/locations/{zone}"

    def start(self) -> None:
        """Starts the process and returns when it serves.

        Raises:
            RuntimeError: it ended instead; carries its log.
        """
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=_REPOSITORY,
                env=os.environ | {"PYTHONPATH": str(_REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the emulator did not start:\n{self.log.read_text()}")

    def stop(self) -> None:
        """Stops it with SIGTERM; its VMs end with it unless it runs with `on_exit="keep"`.

        Raises:
            subprocess.TimeoutExpired: it does not end.
        """
        if self.process is not None:
            self.process.terminate()
            self.process.wait(_STOP_SECONDS)

    def kill(self) -> None:
        """Kills it with SIGKILL: the VMs keep running, as in a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _answers(self) -> bool:
        with AdminClient(self.socket, timeout=0.2) as probe, contextlib.suppress(grpc.RpcError):
            probe.faults()
            return True
        return False


@contextlib.contextmanager
def start_emulator(tmp_dir: Path | None = None, **options: Any) -> Iterator[RunningEmulator]:
    """Runs an emulator with short delays; afterwards no process of it or its VMs is left.

    Args:
        tmp_dir: where its state and log live; a folder in the system's temporary folder if None.
            The socket is always in a folder of its own with a short path.
        options: fields of `EmulatorConfig` that differ from the fast test defaults.

    Yields:
        The running emulator: `endpoint`, `admin`, `state_dir`, `project`, `parent(zone)`.
    """
    folder = Path(tempfile.mkdtemp(prefix="tpu-"))
    state_dir = (tmp_dir or folder) / "tpu-emulator"
    socket = folder / "api.sock"
    values = _FAST | {"project": "local-project"} | options
    emulator = RunningEmulator(
        socket=socket,
        state_dir=state_dir,
        project=values["project"],
        admin=AdminClient(socket),
        log=(tmp_dir or folder) / "tpu-emulator.log",
        command=[
            sys.executable, "-m", "tpu_emulator", "serve",
            "--socket", str(socket), "--state-dir", str(state_dir), *config.flags(values),
        ],
    )  # fmt: skip
    try:
        emulator.start()
        yield emulator
    finally:
        _end(emulator)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(
    condition: Callable[[], Result], *, timeout: float = 60.0, interval: float = 0.02
) -> Result:
    """Calls `condition` until it returns something true, and returns that.

    Raises:
        TimeoutError: it did not within `timeout` seconds; carries its last result.
    """
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout} s; last result: {result!r}")
        time.sleep(interval)
    return result


def _end(emulator: RunningEmulator) -> None:
    """Stops it, and ends the VMs that a `kill` or `on_exit="keep"` left behind."""
    emulator.admin.close()
    try:
        emulator.stop()
    finally:
        emulator.kill()
        state_dir = str(emulator.state_dir)
        processes.kill(
            lambda: [p for found in processes.find(state_dir, {}).values() for p in found]
        )
