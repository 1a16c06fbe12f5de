"""A command that has given up rights: what it can read, write, move and look into, and what not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from operators import hidden_files, python_module
from operators.hidden_files import Right
from operators.python_module import PythonModuleOperator

# Tries each line of its input, a way and a path, and says what became of it.
TRIES = """
import os, sys, tempfile
def tried(way, path):
    try:
        if way == "read": open(path, "rb").read(1)
        elif way == "list": os.listdir(path)
        elif way == "write": open(path, "a").write("x")
        elif way == "make": open(path + "/new", "x").write("x")
        elif way == "point": os.symlink("/tmp/other.py", path + "/new.py")
        elif way == "move": os.rename(path, path + ".moved")
        elif way == "remove": os.remove(path)
        elif way == "take": os.rename(path, tempfile.mkdtemp() + "/taken")
        elif way == "link": os.link(path, tempfile.mkdtemp() + "/link")
        elif way == "signal": os.kill(int(path), 0)
        elif way == "temporary": tempfile.NamedTemporaryFile().write(b"x")
    except OSError as error:
        return type(error).__name__
    return "done"
for line in sys.stdin:
    way, _, path = line.rstrip("\\n").partition(" ")
    print(tried(way, path))
"""
DENIED = "PermissionError"


def landlock() -> int:
    """Return the kernel's version of it; 0: it has none."""
    try:
        return hidden_files._call(444, None, 0, 1)
    except OSError:
        return 0


needs_landlock = pytest.mark.skipif(
    landlock() < hidden_files._LEAST_VERSION, reason="needs a kernel with Landlock 2"
)


def tried(rights: Mapping[Path, Right], way: str, *paths: Path | str) -> list[str]:
    """Return what became of each try by a command that has given up rights."""
    given = json.dumps({str(path): right for path, right in rights.items()})
    done = subprocess.run(
        [sys.executable, "-I", python_module.HIDER, given, sys.executable, "-c", TRIES],
        input="".join(f"{way} {path}\n" for path in paths),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with a secret, with code and a store below it."""
    home = tmp_path / "home"
    for name in ("key", "code/dag.py", "store/runs/run.json"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("content")
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "link").symlink_to(home / "key")
    return home


@pytest.fixture
def rights(home: Path) -> dict[Path, Right]:
    return {home: Right.HIDDEN, home / "code": Right.READ, home / "store": Right.WRITE}


@needs_landlock
def test_what_is_hidden_is_neither_read_nor_changed_nor_taken(
    home: Path, rights: dict[Path, Right]
) -> None:
    assert tried(rights, "read", home / "key", home.parent / "link") == [DENIED] * 2
    for way in ("write", "move", "remove"):
        assert tried(rights, way, home / "key") == [DENIED]
    # Into a folder in which it could be read.
    for way in ("take", "link"):
        assert tried(rights, way, home / "key")[0] in {DENIED, "OSError"}
    assert (home / "key").read_text() == "content"
    assert tried({home: Right.HIDDEN}, "read", home / "store/runs/run.json") == [DENIED]


@needs_landlock
def test_what_is_to_be_read_is_not_changed(home: Path, rights: dict[Path, Right]) -> None:
    assert tried(rights, "read", home / "code/dag.py") == ["done"]
    for way in ("write", "move", "remove"):
        assert tried(rights, way, home / "code/dag.py") == [DENIED]
    for way in ("make", "point"):
        assert tried(rights, way, home / "code") == [DENIED]


@needs_landlock
def test_all_else_is_as_it_was(home: Path, rights: dict[Path, Right]) -> None:
    store, run = home / "store", home / "store/runs/run.json"
    assert tried(rights, "read", run, home.parent / "text.txt", "/proc/meminfo") == ["done"] * 3
    assert tried(rights, "write", run, home.parent / "text.txt", os.devnull) == ["done"] * 3
    assert tried(rights, "list", home, "/") == ["done"] * 2
    for way, path in {"make": store, "take": run, "temporary": ""}.items():
        assert tried(rights, way, path) == ["done"]


@needs_landlock
@pytest.mark.parametrize("file", ["environ", "mem", "maps", "cwd/etc", "root/etc/hostname"])
def test_other_processes_cannot_be_looked_into(file: str, rights: dict[Path, Right]) -> None:
    found = tried(rights, "read", f"/proc/{os.getpid()}/{file}", "/proc/self/environ")
    assert found == [DENIED, "done"]


@pytest.mark.skipif(landlock() < 6, reason="needs a kernel with Landlock 6")
def test_other_processes_get_no_signal_and_children_do(rights: dict[Path, Right]) -> None:
    assert tried(rights, "signal", str(os.getpid())) == [DENIED]
    child = "import subprocess as s; c = s.Popen(['sleep', '60']); c.kill(); print(c.wait())"
    given = json.dumps({str(path): right for path, right in rights.items()})
    done = subprocess.run(
        [sys.executable, "-I", python_module.HIDER, given, sys.executable, "-c", child],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "-9\n"


def test_an_older_kernel_is_not_asked_for_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    for version, wanted in ((2, 8), (5, 8), (6, 24)):
        monkeypatch.setattr(
            hidden_files, "_call", lambda _, attributes, *__: asked.append(attributes)
        )
        hidden_files._ruleset(version)
        assert len(asked.pop()) == wanted


def test_what_is_not_there_is_told(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    absent = home.parent / "hmoe"
    given = json.dumps({str(absent): "hidden", str(home): "hidden", str(home / "no"): "read"})
    subprocess.run([sys.executable, "-I", python_module.HIDER, given, "true"], check=True)
    [line] = [one for one in capfd.readouterr().err.splitlines() if "not there" in one]
    assert line.startswith(f"WARNING: {absent} is not there")


def test_a_kernel_without_it_is_told_and_the_command_runs(
    monkeypatch: pytest.MonkeyPatch, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(hidden_files, "_LEAST_VERSION", 1000)
    monkeypatch.setattr(os, "execvp", lambda _, command: became.append(command))
    monkeypatch.setattr(sys, "argv", ["", json.dumps({str(home): "hidden"}), "true", "--all"])
    monkeypatch.setenv("TMPDIR", str(home.parent))
    hidden_files.main()
    assert became == [["true", "--all"]]
    assert f"WARNING: {home} can be read by this job" in capfd.readouterr().err


def test_what_is_left_is_as_few_folders_as_possible(home: Path, rights: dict[Path, Right]) -> None:
    absent = home.parent / "absent"
    found = dict(hidden_files.left(rights | {absent: Right.HIDDEN}))
    assert {path: right for path, right in found.items() if home.parent in path.parents} == {
        home / "code": Right.READ,
        home / "store": Right.WRITE,
        home.parent / "text.txt": Right.WRITE,
    }
    assert found[Path("/proc")] is Right.WRITE
    assert not {Path("/"), *home.parents, home} & found.keys()
    # Nothing there to hide.
    assert dict(hidden_files.left({absent: Right.HIDDEN})) == {Path("/"): Right.WRITE}


@needs_landlock
def test_an_operators_module_reads_what_it_needs_of_what_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is the job's, the installation's text and login to the cloud are to be read."""
    for name in ("airflow.cfg", "texts/a.txt", "login.json", "store/corpus/a.txt"):
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text("content")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "some_job.py").write_text(
        "import json, os, sys\n"
        "def may(path, way):\n"
        "    try: open(path, way).close()\n"
        "    except PermissionError: return False\n"
        "    return True\n"
        "found = {p: [may(p, 'r'), may(p, 'a')] for p in sys.argv[1:]}\n"
        "print(json.dumps({'found': found}))\n"
    )
    monkeypatch.setattr(python_module, "REPOSITORY", str(tmp_path / "code"))
    home = tmp_path / "home"
    monkeypatch.setenv("REPRETRAIN_HIDDEN_PATHS", str(home))
    monkeypatch.setenv("REPRETRAIN_INPUT_ROOTS", f"corpus,{home}/texts")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(home / "login.json"))
    wanted = {
        home / "airflow.cfg": [False, False],
        home / "texts" / "a.txt": [True, False],
        home / "login.json": [True, False],
        home / "store" / "corpus" / "a.txt": [True, True],
        tmp_path / "code" / "some_job.py": [True, False],
    }
    task = PythonModuleOperator(
        task_id="job",
        module="some_job",
        store_uri=str(home / "store"),
        arguments=[str(path) for path in wanted],
    )
    context: Any = {"ti": SimpleNamespace(), "dag_run": SimpleNamespace()}
    found = task.execute(context)["found"]
    assert found == {str(path): may for path, may in wanted.items()}
