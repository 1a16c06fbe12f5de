"""Finding and ending the processes of a stack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from local.stack import processes, settings
from local.stack.paths import StatePaths
from local.stack.supervision import ProcessId

Start = Callable[..., subprocess.Popen[bytes]]
# Says when it is ready, then sleeps; with the argument it ignores the polite signal.
SLEEPER = """
import signal, sys, time
if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
time.sleep(600)
"""


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path)


@pytest.fixture
def start(paths: StatePaths) -> Iterator[Start]:
    started = []

    def run(*command: str, **options: object) -> subprocess.Popen[bytes]:
        environment = {**os.environ, settings.MARKER: str(paths.root)}
        process = subprocess.Popen(
            command or [sys.executable, "-c", SLEEPER],
            **{"env": environment, "stdout": subprocess.PIPE, **options},  # type: ignore[call-overload]
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def _pids(paths: StatePaths) -> set[int]:
    return {process.pid for process in processes.find(paths)}


def test_a_process_in_a_session_of_its_own_is_found(paths: StatePaths, start: Start) -> None:
    process = start(start_new_session=True)
    assert _pids(paths) == {process.pid}


def test_processes_of_other_stacks_are_not_ours(tmp_path: Path, start: Start) -> None:
    start()
    assert _pids(StatePaths(tmp_path / "other")) == set()


def test_the_caller_is_never_found(paths: StatePaths, start: Start) -> None:
    code = (
        "import pathlib, sys; from local.stack import processes, paths; "
        "print(processes.find(paths.StatePaths(pathlib.Path(sys.argv[1]))), flush=True)"
    )
    environment = {**os.environ, settings.MARKER: str(paths.root)}
    output = subprocess.run(
        [sys.executable, "-c", code, str(paths.root)],
        env=environment,
        check=True,
        capture_output=True,
    ).stdout
    assert output == b"[]\n"


def test_postgres_is_found_by_its_data_folder(paths: StatePaths, start: Start) -> None:
    # Its processes overwrite their environment, so they are known by where they work.
    paths.database.mkdir(parents=True)
    program = paths.root / "postgres" / "postgres"
    shutil.copy("/bin/sh", program)
    server = start(
        str(program), "-c", "echo; read line", env={}, cwd=paths.database, stdin=subprocess.PIPE
    )
    assert _pids(paths) == {server.pid}


def test_listeners_are_reported_with_address(paths: StatePaths, start: Start) -> None:
    code = (
        "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
        "print(s.getsockname()[1], flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        found = processes.listeners([psutil.Process(server.pid)])
        server.kill()
    assert found == [processes.Listener(server.pid, "127.0.0.1", port)]


def test_polite_processes_get_to_clean_up(paths: StatePaths, start: Start, tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = (
        "import pathlib, signal, sys, time\n"
        f"def stop(*_): pathlib.Path({str(note)!r}).write_text('cleaned up'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, stop); print(flush=True); time.sleep(600)"
    )
    start(sys.executable, "-c", code)
    processes.end(processes.find(paths), patience=30)
    assert note.read_text() == "cleaned up"
    assert _pids(paths) == set()


def test_stubborn_processes_are_killed(paths: StatePaths, start: Start) -> None:
    start(sys.executable, "-c", SLEEPER, "stubborn")
    processes.end(processes.find(paths), patience=0.5)
    assert _pids(paths) == set()


def test_process_id_does_not_confuse_a_later_process_of_the_same_number(start: Start) -> None:
    identity = ProcessId.of(start().pid)
    assert identity.is_running()
    assert not identity.model_copy(update={"started": identity.started - 60}).is_running()


def test_process_id_takes_a_zombie_for_dead(start: Start) -> None:
    process = start()
    identity = ProcessId.of(process.pid)
    process.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not identity.is_running()
