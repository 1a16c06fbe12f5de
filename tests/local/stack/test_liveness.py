"""When a scheduler counts as silent, and what is done about it."""

from __future__ import annotations

import http.server
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault

import pytest

from local.stack import liveness, parts, ports, processes, settings, shutdown
from local.stack.liveness import LOOK_TICKS, START_FACTOR, TICK_SECONDS, Liveness, look
from local.stack.parts import Part, Tier
from local.stack.paths import REPOSITORY, RuntimePaths, StatePaths
from local.stack.supervision import StackRecord, Supervisor, render

LOOK_SECONDS = LOOK_TICKS * TICK_SECONDS
LONG = 10_000.0
# Alive until there is a file; from then on it is there and denies, as Airflow's health server does.
SCHEDULER = """
import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists(sys.argv[2]) else 200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Supervisord:
    """What supervisord says of a scheduler, and the signals that were asked of it."""

    def __init__(self, state: str = "RUNNING", fault: Fault | None = None) -> None:
        self.signals: list[tuple[str, str]] = []
        self._state = state
        self._fault = fault

    def getProcessInfo(self, name: str) -> dict[str, Any]:  # noqa: N802 - supervisord's
        return {"statename": self._state, "pid": 7, "start": 1000, "now": 1000 + int(LONG)}

    def signalProcess(self, name: str, number: str) -> None:  # noqa: N802 - supervisord's
        if self._fault is not None:
            raise self._fault
        self.signals.append((name, number))


@contextmanager
def _answering(status: int) -> Iterator[int]:
    """Serve a status at every address while the block runs; yields the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer((ports.HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_only_a_long_silence_ends_a_scheduler() -> None:
    judge = Liveness(seconds=4 * LOOK_SECONDS)
    assert [judge.is_over(7, LONG, "503") for _ in range(4)] == [False, False, False, True]


def test_one_sign_of_life_is_enough() -> None:
    judge = Liveness(seconds=2 * LOOK_SECONDS)
    assert not judge.is_over(7, LONG, "503")
    assert not judge.is_over(7, LONG, None)
    assert not judge.is_over(7, LONG, "503")


def test_the_silence_of_a_process_is_not_that_of_the_next() -> None:
    judge = Liveness(seconds=2 * LOOK_SECONDS)
    assert not judge.is_over(7, LONG, "503")
    assert not judge.is_over(8, LONG, "503")
    assert judge.is_over(8, LONG, "503")


def test_a_start_may_take_longer() -> None:
    judge = Liveness()
    grace = START_FACTOR * judge.seconds
    assert not any(judge.is_over(7, up, "refused") for up in range(0, grace, LOOK_SECONDS))
    assert judge.is_over(7, grace, "refused")


def test_a_silent_scheduler_is_killed() -> None:
    supervisor = Supervisord()
    with _answering(503) as port:
        done = look(supervisor, port, Liveness(seconds=1))
    assert supervisor.signals == [("airflow:scheduler", "KILL")]
    assert done is not None
    assert "process 7, has given no sign of life for 1 s" in done
    assert f"port {port} answers with status 503" in done


def test_a_living_scheduler_is_left_alone() -> None:
    supervisor = Supervisord()
    with _answering(200) as port:
        assert look(supervisor, port, Liveness(seconds=1)) is None
    assert supervisor.signals == []


def test_a_server_that_is_not_there_is_a_silence() -> None:
    [port] = ports.choose(("gone",), {}).values()
    assert "ConnectionRefused" in str(liveness.problem_of(port))


@pytest.mark.parametrize("state", ["STARTING", "STOPPING", "STOPPED", "BACKOFF", "FATAL"])
def test_a_scheduler_that_somebody_stopped_is_left_alone(state: str) -> None:
    supervisor = Supervisord(state)
    [port] = ports.choose(("gone",), {}).values()
    assert look(supervisor, port, Liveness(seconds=1)) is None
    assert supervisor.signals == []


def test_a_stack_that_goes_down_is_no_failure() -> None:
    supervisor = Supervisord(fault=Fault(6, "SHUTDOWN_STATE"))
    [port] = ports.choose(("gone",), {}).values()
    assert look(supervisor, port, Liveness(seconds=1)) == "supervisord refuses: SHUTDOWN_STATE"


def test_ticks_of_long_ago_do_not_count() -> None:
    assert not liveness.is_late("when:1000", 1000.9)
    assert not liveness.is_late("when:1000", 1000.0 + TICK_SECONDS)
    assert liveness.is_late("when:1000", 1000.0 + 3 * TICK_SECONDS)


def test_seconds_can_be_set() -> None:
    assert liveness.seconds_of("45") == 45
    assert liveness.seconds_of(None) == liveness.DEFAULT_SECONDS
    # Airflow first waits for heartbeats, and a stack may take that long to recover.
    assert liveness.DEFAULT_SECONDS >= 120


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5"])
def test_seconds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SystemExit, match=f"{settings.SILENT_SECONDS}='{text}'"):
        liveness.seconds_of(text)


def test_the_stack_gives_both_the_same_port(tmp_path: Path) -> None:
    paths, runtime = StatePaths(tmp_path), RuntimePaths(tmp_path / "r")
    numbers = {name: 20000 + at for at, name in enumerate(settings.PORT_NAMES)}
    environment = settings.environment(paths, runtime, numbers, {})
    [part] = [one for one in parts.all_parts(paths, runtime, numbers) if one.listens]
    port = environment["AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT"]
    assert part.command[-2:] == ("--port", port)
    assert environment["AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK"] == "True"
    assert environment["AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_HOST"] == ports.HOST
    # Its name, its group's and its tier's are one, by which supervisord is asked.
    assert part.name.upper() == part.tier.name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_supervisord_starts_a_silent_scheduler_again(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path / "state of 'mine' 100%")
    paths.create()
    runtime = RuntimePaths.of(paths.root)
    runtime.create()
    [port] = ports.choose(("health",), {}).values()
    silence = tmp_path / "silent"
    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    program = (sys.executable, str(script), str(port), str(silence))
    both = (
        Part(name=parts.SCHEDULER, command=program, tier=Tier.AIRFLOW),
        Part(
            name=parts.LIVENESS,
            command=parts.python_module("local.stack.liveness", "--port", str(port)),
            tier=Tier.LIVENESS,
            leaves_children=False,
            listens=True,
        ),
    )
    paths.supervisor_config.write_text(render(both, paths, runtime))
    supervisor = Supervisor(paths, runtime)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), settings.SILENT_SECONDS: "1"}
    identity = supervisor.launch(settings.process_environment(environment, paths))
    record = StackRecord(
        runtime_dir=str(runtime.root),
        ports={},
        extra_environment={},
        stop_seconds=30,
        supervisor=identity,
    )
    try:
        for part in both:
            supervisor.start(part)
        health = paths.log(parts.SCHEDULER)
        # It has been looked at and found alive.
        while not health.exists() or '"GET /health' not in health.read_text():
            time.sleep(0.2)
        assert supervisor.processes()[parts.SCHEDULER].starts == 1

        silence.touch()

        while supervisor.processes()[parts.SCHEDULER].starts < 2:
            time.sleep(0.2)
        silence.unlink()
        assert "has given no sign of life for 1 s" in paths.log(parts.LIVENESS).read_text()
        assert supervisor.processes()[parts.LIVENESS].starts == 1
    finally:
        shutdown.stop(paths, record, lambda line: None)
    assert processes.find(paths) == []
    assert "refuses" not in paths.log(parts.LIVENESS).read_text()
