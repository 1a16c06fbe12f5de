from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.tpu_emulator.support import Tpu
from tpu_emulator.testing import start_emulator

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tpu-") as name:
        yield Path(name)


def _refusal(socket_path: Path, state_dir: Path, *options: str) -> str:
    """The error of an emulator that does not start."""
    command = [sys.executable, "-m", "tpu_emulator", "serve", "--socket", str(socket_path)]
    result = subprocess.run(
        [*command, "--state-dir", str(state_dir), *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode in (1, 2), result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def test_only_the_owner_can_reach_socket_and_state(tpu: Tpu) -> None:
    emulator = tpu.emulator
    assert emulator.socket.stat().st_mode & 0o777 == 0o600
    assert emulator.socket.parent.stat().st_mode & 0o777 == 0o700
    assert emulator.state_dir.stat().st_mode & 0o777 == 0o700
    assert (emulator.state_dir / "emulator.sqlite").stat().st_mode & 0o077 == 0


def test_only_metadata_servers_listen_on_loopback(tpu: Tpu) -> None:
    tpu.active()
    assert tpu.emulator.process
    process = psutil.Process(tpu.emulator.process.pid)
    listening = [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    ports = {
        worker["metadata_port"] for row in tpu.admin.table()["nodes"] for worker in row["workers"]
    }
    assert {c.laddr.port for c in listening} == ports
    assert {c.laddr.ip for c in listening} == {"127.0.0.1"}


def test_a_socket_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    folder.chmod(0o755)
    message = _refusal(folder / "api.sock", folder / "state")
    assert "mode 0755" in message
    assert f"chmod 700 {folder}" in message


def test_a_state_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    state = folder / "state"
    state.mkdir(mode=0o700)
    state.chmod(0o770)
    assert "mode 0770" in _refusal(folder / "api.sock", state)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 12345, 12345)
    assert "another user (uid 12345)" in _refusal(folder / "api.sock", folder / "state")


def test_a_link_to_a_folder_is_refused(folder: Path) -> None:
    (folder / "real").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "real")
    assert "symbolic link" in _refusal(folder / "link" / "api.sock", folder / "state")


def test_a_long_socket_path_is_refused(folder: Path) -> None:
    message = _refusal(folder / ("x" * 100), folder / "state")
    assert "shorter" in message


def test_a_file_in_the_place_of_the_socket_is_kept(folder: Path) -> None:
    path = folder / "api.sock"
    path.write_text("precious")
    assert "not a socket" in _refusal(path, folder / "state")
    assert path.read_text() == "precious"


def test_a_second_emulator_on_the_same_socket_or_state_is_refused(tpu: Tpu, folder: Path) -> None:
    assert "another emulator" in _refusal(tpu.emulator.socket, folder / "state")
    assert "another emulator" in _refusal(folder / "api.sock", tpu.emulator.state_dir)
    assert tpu.admin.faults() == []


def test_the_socket_of_a_killed_emulator_is_replaced(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        emulator.kill()
        assert emulator.socket.exists()
        emulator.start()
        assert emulator.admin.table()["nodes"] == []


def test_options_can_come_from_a_file_and_bad_ones_are_named(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text('{"boot_dely": 1}')
    state = folder / "state"
    assert "boot_dely" in _refusal(folder / "s", state, "--config", str(config))
    assert "KEY=VALUE" in _refusal(folder / "s", state, "--vm-env", "nonsense")
    assert "No such file" in _refusal(folder / "s", state, "--config", str(folder / "none"))
    config.write_text('{"boot_delay": "soon"}')
    assert "boot-delay: invalid float" in _refusal(folder / "s", state, "--config", str(config))


def test_a_path_that_is_no_folder_is_refused(folder: Path) -> None:
    (folder / "file").write_text("")
    assert "file" in _refusal(folder / "file" / "s", folder / "state")


def test_nothing_is_left_when_the_helper_ends(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        path = emulator.socket
        assert emulator.is_running
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
    assert not emulator.is_running
    assert not path.parent.exists()
