"""A scheduler that is there and does nothing ends with its container, which is then restarted.

The program ``airflow`` is a small one here, with the health server that Airflow's has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.verification.compose.compose_file import MAIN, ComposeFile
from tests.verification.compose.engine import Engine, Running, _first_process, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
LIMITS, SHORT = "SILENT, STARTING = 120, 240", "SILENT, STARTING = 1, {starting}"
PATIENCE = 60.0
# Told to stop it ends when it may, as one whose tasks still run.
AIRFLOW = """#!/usr/bin/env python
import http.server, os, pathlib, signal, sys, threading, time

assert sys.argv[1:] == ["scheduler"], sys.argv

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists("/tmp/silent") else 200)
        self.end_headers()

def stop(*_):
    pathlib.Path("/tmp/told").touch()
    while not os.path.exists("/tmp/done"):
        time.sleep(0.1)
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
server = http.server.HTTPServer(("127.0.0.1", 8974), Handler)
threading.Thread(target=server.serve_forever).start()
while True:
    time.sleep(1)
"""


@contextmanager
def _scheduler(settings: dict[str, str], *, starting: int) -> Iterator[tuple[Engine, Path]]:
    """Run the service alone while the block runs; yields its /tmp, too."""
    state = Path(tempfile.mkdtemp(prefix="cc-", dir="/tmp"))
    programs = state / "programs"
    programs.mkdir(mode=0o755)
    (programs / "airflow").write_text(AIRFLOW)
    (programs / "airflow").chmod(0o755)
    compose = ComposeFile.load(settings, MAIN)
    body = dict(compose.content["services"]["scheduler"]) | {"depends_on": {}}
    body["volumes"] = [*body["volumes"], f"{programs}:/opt/programs:ro"]
    body["environment"] = body["environment"] | {
        "PATH": "/opt/programs:/opt/venv/bin:/usr/bin:/bin"
    }
    *words, program = body["healthcheck"]["test"]
    assert LIMITS in program
    program = program.replace(LIMITS, SHORT.format(starting=starting))
    body["healthcheck"] = body["healthcheck"] | {"test": [*words, program]}
    engine = Engine(ComposeFile({**compose.content, "services": {"scheduler": body}}), state)
    # What an earlier stop of the container has left.
    engine.volume("scratch").mkdir(parents=True)
    engine.volume("scratch").chmod(0o1777)
    (engine.volume("scratch") / "stopping").touch()
    os.chown(engine.volume("scratch") / "stopping", 10001, 10001)
    try:
        engine.up()
        yield engine, engine.volume("scratch")
    finally:
        engine.down()
        shutil.rmtree(state, ignore_errors=True)


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_silent_scheduler_ends_its_container(settings: dict[str, str]) -> None:
    with _scheduler(settings, starting=0) as (engine, folder):
        running = engine.running["scheduler"]
        assert engine._is_healthy(running.service)
        (folder / "silent").touch()
        assert not engine._is_healthy(running.service)
        assert running.process.wait(timeout=PATIENCE) == 128 + signal.SIGKILL
        assert engine.pids() == []


def test_one_that_starts_is_given_time(settings: dict[str, str]) -> None:
    with _scheduler(settings, starting=1000) as (engine, folder):
        running = engine.running["scheduler"]
        (folder / "silent").touch()
        assert not engine._is_healthy(running.service)
        _goes_on(running)
        (folder / "silent").unlink()
        assert engine._is_healthy(running.service)
        (folder / "done").touch()


def test_one_that_is_told_to_stop_is_not_killed(settings: dict[str, str]) -> None:
    with _scheduler(settings, starting=0) as (engine, folder):
        running = engine.running["scheduler"]
        first = _first_process(running.process.pid)
        assert first is not None
        os.kill(first, signal.SIGTERM)
        _until((folder / "told").exists)
        (folder / "silent").touch()
        assert not engine._is_healthy(running.service)
        _goes_on(running)
        (folder / "done").touch()
        assert running.process.wait(timeout=PATIENCE) == 0


def _goes_on(running: Running) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        pytest.fail(f"ended with {running.process.wait(timeout=2)}")
