"""What an earlier incarnation of a part has left is ended before the part starts again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from local.stack import launcher, parts, processes, settings
from local.stack.parts import all_parts
from local.stack.paths import REPOSITORY, RuntimePaths, StackError, StatePaths

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
# What becomes of a part that is started: its process, and what it was given.
TELL = [
    sys.executable,
    "-c",
    "import json, os; print(json.dumps([os.getpid(), dict(os.environ)]), flush=True)",
]
PORTS = dict(zip(settings.PORT_NAMES, range(20001, 20005), strict=True))


class Others:
    """Processes that an earlier start has left."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, part: str | None, *, root: Path | None = None) -> subprocess.Popen[bytes]:
        marks = {settings.MARKER: str(root or self._root)} | ({settings.PART: part} if part else {})
        process = subprocess.Popen(
            SLEEP, env={**os.environ, **marks}, stdout=subprocess.PIPE, start_new_session=True
        )
        self._started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Others]:
    others = Others(tmp_path)
    yield others
    others.end()


def _launch(
    root: Path, *options: str, command: list[str] = TELL, **more: str
) -> tuple[subprocess.Popen[str], list[str]]:
    environment = {**os.environ, settings.MARKER: str(root), "PYTHONPATH": str(REPOSITORY), **more}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "local.stack.launcher", *options, "--", *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output, _ = process.communicate(timeout=60)
    return process, output.splitlines()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() == -signal.SIGKILL


def test_only_what_the_same_part_of_the_same_stack_left_is_ended(
    tmp_path: Path, others: Others
) -> None:
    left = [others.start("scheduler") for _ in range(2)]
    spared = [
        others.start("triggerer"),
        others.start("scheduler", root=tmp_path / "other"),
        # A TPU VM has the mark of the stack and of no part.
        others.start(None),
    ]

    process, (said, told) = _launch(tmp_path, "--part", "scheduler")

    assert all(_has_ended(one) for one in left)
    assert not any(one.poll() for one in spared)
    assert process.returncode == 0
    assert said.startswith("launcher: ended 2 processes of the scheduler before this one: ")
    assert all(str(one.pid) in said for one in left)
    pid, _ = json.loads(told)
    assert pid == process.pid, "supervisord would watch another process than the part"


def test_the_part_has_its_mark_and_its_own_settings(tmp_path: Path) -> None:
    _, (told,) = _launch(tmp_path, "--part", "triggerer", "--env", "A=b=c %20", A="other")
    environment = json.loads(told)[1]
    assert environment["A"] == "b=c %20"
    assert environment[settings.PART] == environment[settings.SESSION_NAME] == "triggerer"
    assert environment[settings.MARKER] == str(tmp_path)


def test_without_the_mend_the_command_starts_as_it_is(tmp_path: Path, others: Others) -> None:
    left = others.start("scheduler")
    unmended = {settings.UNMENDED: "1"}
    _, (told,) = _launch(tmp_path, "--part", "scheduler", "--env", "A=b", **unmended)
    assert "A" not in json.loads(told)[1]
    assert left.poll() is None


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    process, (said,) = _launch(tmp_path, "--part", "x", command=["/no/such/program"])
    assert process.returncode == 1
    assert "/no/such/program" in said


def test_what_starts_meanwhile_is_ended_too(
    tmp_path: Path, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies has just started another, which the first look could not see."""
    first = others.start("scheduler")
    later = []
    send = psutil.Process.send_signal

    def send_late(process: psutil.Process, number: int) -> None:
        if not later:
            later.append(others.start("scheduler"))
        send(process, number)

    monkeypatch.setattr(psutil.Process, "send_signal", send_late)
    ended = launcher.end_leftovers(StatePaths(tmp_path), "scheduler")
    assert set(ended) == {first.pid, later[0].pid}
    assert _has_ended(later[0])


def test_a_process_that_vanishes_meanwhile_is_no_error(
    tmp_path: Path, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = others.start("scheduler")
    found = processes.find

    def find_late(*arguments: Any) -> list[psutil.Process]:
        result = found(*arguments)
        left.kill()
        # Collected, so that not even a zombie has its number.
        left.wait()
        return result

    monkeypatch.setattr(processes, "find", find_late)
    assert list(launcher.end_leftovers(StatePaths(tmp_path), "scheduler")) == [left.pid]


def test_a_process_that_does_not_end_is_an_error(
    tmp_path: Path, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = others.start("scheduler")
    monkeypatch.setattr(psutil.Process, "send_signal", lambda *_: None)
    with pytest.raises(StackError, match=f"do not end within 0 s of SIGKILL: {left.pid} "):
        launcher.end_leftovers(StatePaths(tmp_path), "scheduler", patience=0.2)


def test_every_part_that_can_leave_something_is_launched_so(tmp_path: Path) -> None:
    alone = {parts.POSTGRES, parts.LIVENESS}
    runtime = RuntimePaths(Path("/tmp/r"))
    for part in all_parts(StatePaths(tmp_path), runtime, PORTS):
        is_launched = "local.stack.launcher" in part.launch
        assert is_launched == (part.name not in alone)
        assert part.launch[-len(part.command) :] == part.command


def test_tpu_vms_are_of_no_part(tmp_path: Path) -> None:
    """They outlive the emulator; what is left of it is ended when it starts again."""
    runtime = RuntimePaths(Path("/tmp/r"))
    [emulator] = [
        part
        for part in all_parts(StatePaths(tmp_path), runtime, PORTS)
        if part.name == parts.TPU_EMULATOR
    ]
    given = [word for word in emulator.command if "=" in word]
    assert f"{settings.MARKER}={tmp_path}" in given
    assert not any(settings.PART in word for word in given)


def test_only_scheduler_and_triggerer_lose_idle_transactions(tmp_path: Path) -> None:
    """A migration holds its lock in an idle transaction for as long as it takes."""
    runtime = RuntimePaths(Path("/tmp/r"))
    impatient = {
        part.name
        for part in all_parts(StatePaths(tmp_path), runtime, PORTS)
        if any("idle_in_transaction" in word for word in part.launch)
    }
    assert impatient == {parts.SCHEDULER, parts.TRIGGERER}
    everybodys = settings.environment(StatePaths(tmp_path), runtime, PORTS, {})
    assert "idle_in_transaction" not in json.dumps(everybodys)


def test_the_launcher_costs_little(tmp_path: Path) -> None:
    begun = time.monotonic()
    _launch(tmp_path, "--part", "scheduler")
    # A tenth of it on an idle machine; every part of a start waits for it.
    assert time.monotonic() - begun < 10
