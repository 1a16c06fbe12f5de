"""The state folder and the private runtime folder."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.stack.paths import RuntimePaths, StackError, StatePaths


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_sockets_of_a_deep_checkout_can_be_bound(short_tmp: Path) -> None:
    runtime = RuntimePaths.of(Path("/", *["deeply-nested-folder"] * 20, ".local"))
    runtime.create()
    for path in runtime.sockets:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))


def test_each_state_folder_has_its_own_runtime_folder(short_tmp: Path) -> None:
    first, second = RuntimePaths.of(Path("/a/.local")), RuntimePaths.of(Path("/b/.local"))
    assert first.root != second.root
    assert RuntimePaths.of(Path("/a/.local")) == first


def test_a_long_temporary_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 80)
    with pytest.raises(StackError, match="Set TMPDIR to a shorter folder"):
        RuntimePaths.of(Path("/a"))


def test_runtime_folder_is_private_and_may_exist_already(short_tmp: Path) -> None:
    runtime = RuntimePaths.of(Path("/a"))
    runtime.create()
    runtime.create()
    assert stat.S_IMODE(runtime.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(runtime.database.stat().st_mode) == 0o700


def test_runtime_folder_open_to_others_is_refused(short_tmp: Path) -> None:
    runtime = RuntimePaths.of(Path("/a"))
    runtime.root.mkdir()
    runtime.root.chmod(0o755)
    with pytest.raises(StackError, match="not a private folder of yours"):
        runtime.create()


def test_runtime_folder_that_is_a_link_is_refused(short_tmp: Path) -> None:
    runtime = RuntimePaths.of(Path("/a"))
    elsewhere = short_tmp / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    runtime.root.symlink_to(elsewhere)
    with pytest.raises(StackError, match="not a private folder of yours"):
        runtime.create()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's folder")
def test_runtime_folder_of_another_user_is_refused(short_tmp: Path) -> None:
    runtime = RuntimePaths.of(Path("/a"))
    runtime.root.mkdir(mode=0o700)
    os.chown(runtime.root, 65534, 65534)
    with pytest.raises(StackError, match="owner 65534"):
        runtime.create()


def test_state_folder_is_closed_to_others(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path / "new" / "state")
    paths.create()
    for folder in (paths.root, paths.airflow_home, paths.emulator, paths.logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_state_folder_that_another_command_has_made_is_closed_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = StatePaths(tmp_path / "state")
    paths.root.mkdir(mode=0o755)
    seen = list[int]()
    make = Path.mkdir

    def mkdir(self: Path, *arguments: Any, **options: Any) -> None:
        if self != paths.root:
            seen.append(stat.S_IMODE(paths.root.stat().st_mode))
        make(self, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    paths.create()
    assert seen
    assert {*seen} == {0o700}


def test_state_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="--state-dir"):
        StatePaths(tmp_path / "file" / "state").create()


def test_logs_of_the_previous_start_are_kept_once(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    paths.create()
    for text in ("first", "second"):
        paths.log("scheduler").write_text(text)
        paths.rotate_logs()
    assert (paths.previous_logs / "scheduler.log").read_text() == "second"
    assert list(paths.logs.iterdir()) == []
