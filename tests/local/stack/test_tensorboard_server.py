"""TensorBoard has no login, so it answers nobody who calls it by a foreign name."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.stack import ports

NAME = "tensorboard"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Start TensorBoard; return its port."""
    chosen = ports.choose((NAME,), {})[NAME]
    command = [sys.executable, "-m", "local.stack.tensorboard_server", "--logdir", str(tmp_path)]
    with subprocess.Popen([*command, "--host", ports.HOST, "--port", str(chosen)]) as server:
        try:
            while ports.is_free(chosen):
                assert server.poll() is None
                time.sleep(0.1)
            yield chosen
        finally:
            server.terminate()


def status(port: int, host: str) -> int:
    connection = http.client.HTTPConnection(ports.HOST, port)
    connection.request("GET", "/data/runs", headers={"Host": host})
    return connection.getresponse().status


def test_only_names_of_this_machine_are_answered(port: int) -> None:
    for host in ("localhost", "127.0.0.1"):
        assert status(port, f"{host}:{port}") == 200
    for host in ("attacker.example", f"localhost.attacker.example:{port}", "127.0.0.1.nip.io", ""):
        assert status(port, host) == 403
