"""A real supervisord with small parts: starting in order, failing, restarting, stopping."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from local.stack import processes, settings, shutdown
from local.stack.parts import Part, Tier
from local.stack.paths import REPOSITORY, RuntimePaths, StackError, StatePaths
from local.stack.startup import Startup
from local.stack.supervision import PartProcess, StackRecord, Supervisor, render
from tests.local.stack.crashing import crash

Begin = Callable[..., Supervisor]


def _part(name: str, code: str, **options: object) -> Part:
    return Part(name=name, command=(sys.executable, "-c", code), tier=Tier.DATABASE, **options)  # type: ignore[arg-type]


def _is_running(name: str, process: PartProcess) -> str | None:
    done = process.state == "EXITED" and process.exit_code == 0
    return None if done or process.state == "RUNNING" else process.state


def _is_silent(name: str, process: PartProcess) -> str:
    """What Python needs to come up is no sign that it does its job: on a busy machine, seconds."""
    return "no answer"


SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    # Spaces, quotes and percent signs all mean something in supervisord's configuration.
    paths = StatePaths(tmp_path / "state of 'mine' 100%")
    paths.create()
    return paths


@pytest.fixture
def begin(paths: StatePaths) -> Iterator[Begin]:
    """Launch supervisord with parts and start them."""
    runtime = RuntimePaths.of(paths.root)
    runtime.create()

    def run(
        *parts: Part,
        say: Callable[[str], None] = lambda line: None,
        problem: Callable[[str, PartProcess], str | None] = _is_running,
    ) -> Supervisor:
        paths.supervisor_config.write_text(render(parts, paths, runtime))
        supervisor = Supervisor(paths, runtime)
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        identity = supervisor.launch(settings.process_environment(environment, paths))
        StackRecord(
            runtime_dir=str(runtime.root),
            ports={},
            extra_environment={},
            stop_seconds=30,
            supervisor=identity,
        ).write(str(paths.record))
        Startup(parts, supervisor=supervisor, problem=problem, paths=paths, say=say).run(seconds=60)
        return supervisor

    yield run
    shutdown.stop(paths, StackRecord.load_or_none(str(paths.record)), lambda line: None)
    assert processes.find(paths) == []
    assert not runtime.root.exists()


def test_a_part_starts_after_what_it_needs(begin: Begin) -> None:
    lines: list[str] = []
    begin(
        _part("second", SLEEP, needs=("first",)),
        _part("first", "", once=True),
        say=lines.append,
    )
    assert [line.split()[0] for line in lines] == ["first", "second"]


def test_a_part_that_dies_shows_its_log(begin: Begin, paths: StatePaths) -> None:
    with pytest.raises(StackError) as failure:
        begin(_part("broken", "import sys; sys.exit('the reason')"), problem=_is_silent)
    assert "broken died" in str(failure.value)
    assert "the reason" in str(failure.value)
    assert str(paths.log("broken")) in str(failure.value)


def test_a_command_that_does_not_exist_is_a_failure(begin: Begin) -> None:
    with pytest.raises(StackError, match="absent"):
        begin(Part(name="absent", command=("/no/such/program",), tier=Tier.DATABASE))


def test_a_part_that_does_not_get_ready_is_a_failure(paths: StatePaths, begin: Begin) -> None:
    supervisor = begin(part := _part("slow", SLEEP))
    startup = Startup(
        [part],
        supervisor=supervisor,
        problem=lambda name, process: "no answer",
        paths=paths,
        say=lambda line: None,
    )
    startup._begun["slow"] = time.monotonic()
    with pytest.raises(StackError, match=r"slow is not ready in time \(no answer\)"):
        startup.run(seconds=0)


def test_a_killed_part_is_started_again(begin: Begin) -> None:
    supervisor = begin(_part("worker", SLEEP))
    before = supervisor.processes()["worker"]
    assert before.pid is not None
    assert before.starts == 1
    os.kill(before.pid, signal.SIGKILL)
    after = before
    while after.pid in {None, before.pid}:
        time.sleep(0.05)
        after = supervisor.processes()["worker"]
    assert after.starts == 2
    assert psutil.pid_exists(after.pid)


def test_what_a_killed_part_leaves_is_ended_before_it_starts_again(
    begin: Begin, paths: StatePaths
) -> None:
    """As Airflow's tasks do, the child is in a session of its own, where no group reaches it."""
    supervisor = begin(
        _part(
            "parent",
            "import subprocess, sys, time; "
            f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True); "
            "print('ready', flush=True); time.sleep(600)",
        ),
        _part("beside", SLEEP),
    )
    while "ready" not in paths.log("parent").read_text():
        time.sleep(0.05)
    before = supervisor.processes()
    assert before["parent"].pid is not None
    [child] = psutil.Process(before["parent"].pid).children()

    os.kill(before["parent"].pid, signal.SIGKILL)

    while paths.log("parent").read_text().count("ready") < 2:
        time.sleep(0.05)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert f"launcher: ended 1 process of the parent before this one: {child.pid} " in (
        paths.log("parent").read_text()
    )
    assert supervisor.processes()["beside"].pid == before["beside"].pid


def test_parts_stop_in_reverse_order_of_tiers(
    paths: StatePaths, begin: Begin, tmp_path: Path
) -> None:
    journal, script = tmp_path / "journal", tmp_path / "part.py"
    script.write_text(
        "import signal, sys, time\n"
        f"def stop(*_): open({str(journal)!r}, 'a').write(sys.argv[1] + ' '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, stop); print('ready', flush=True); time.sleep(600)"
    )
    names = {"lowest": Tier.DATABASE, "middle": Tier.SERVICES, "highest": Tier.AIRFLOW}
    begin(
        *(
            Part(name=name, command=(sys.executable, str(script), name), tier=tier)
            for name, tier in names.items()
        )
    )
    while not all("ready" in paths.log(name).read_text() for name in names):
        time.sleep(0.05)
    shutdown.stop(paths, StackRecord.load(str(paths.record)), lambda line: None)
    assert journal.read_text().split() == ["highest", "middle", "lowest"]


def test_stopping_finds_what_a_killed_supervisor_left(paths: StatePaths, begin: Begin) -> None:
    begin(_part("orphan", SLEEP))
    record = StackRecord.load(str(paths.record))
    assert record.supervisor is not None
    crash(record.supervisor.pid)
    lines: list[str] = []
    assert shutdown.stop(paths, record, lines.append)
    assert any("ending what was left" in line for line in lines)
    assert processes.find(paths) == []


def test_stopping_does_not_need_the_record(paths: StatePaths, begin: Begin) -> None:
    begin(_part("worker", SLEEP))
    paths.record.unlink()
    assert shutdown.stop(paths, None, lambda line: None)
    assert processes.find(paths) == []


def test_nothing_is_written_outside_of_the_state_folder(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    supervisor = begin(_part("worker", SLEEP))
    assert "spawned: 'worker'" in supervisor.log.read_text()
    assert list(elsewhere.iterdir()) == []


def test_control_socket_is_private(begin: Begin, paths: StatePaths) -> None:
    begin(_part("worker", SLEEP))
    socket = RuntimePaths.of(paths.root).supervisor_socket
    assert socket.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("folder", ["a ;b", "a #b", "a\nb"])
def test_paths_supervisord_cannot_express_are_refused(folder: str) -> None:
    paths = StatePaths(Path("/") / folder)
    with pytest.raises(StackError, match="cannot be written"):
        render([_part("x", SLEEP)], paths, RuntimePaths(Path("/tmp/r")))
