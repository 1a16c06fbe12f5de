"""TensorBoard for a team: it answers to names of its machine, and to the one of its address."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Without TensorFlow, which takes half a minute to import and is of no use without a bucket.
BOARD = """
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from training.reporting import board
board.main()
"""


def command(*options: str) -> list[str]:
    return [sys.executable, "-c", BOARD, *options]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Start it as the compose file does; return its port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        chosen: int = one.getsockname()[1]
    options = ("--logdir", str(tmp_path), "--host=127.0.0.1", f"--port={chosen}")
    address = "--address=https://curves.example.com:8443/board"
    with subprocess.Popen(command(*options, address)) as server:
        try:
            while not is_listening(chosen):
                assert server.poll() is None
                time.sleep(0.1)
            yield chosen
        finally:
            server.terminate()


def is_listening(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def status(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/data/runs", headers={"Host": host})
    return connection.getresponse().status


def test_the_name_of_the_address_is_answered_and_no_foreign_one(port: int) -> None:
    for host in ("curves.example.com", "curves.example.com:8443", f"localhost:{port}"):
        assert status(port, host) == 200
    for host in ("attacker.example", "curves.example.com.attacker.example", "example.com", ""):
        assert status(port, host) == 403


def test_an_address_without_a_host_is_refused(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("--logdir", str(tmp_path), "--address=curves.example.com"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "--address 'curves.example.com' names no host; write https://HOST" in ended.stderr
