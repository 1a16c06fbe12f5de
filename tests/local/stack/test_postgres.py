"""The database starts wherever the checkout lies."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg2
import pytest

from local.stack.paths import REPOSITORY
from local.stack.postgres import WHEEL
from local.stack.settings import DATABASE_USER


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """Return a folder that only its owner may enter, as ``/root`` is, with the wheel in it."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o700)
    spec = find_spec(WHEEL)
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for name in (WHEEL, f"{WHEEL}.libs"):
        shutil.copytree(package.with_name(name), folder / name)
    return folder


def test_a_checkout_that_only_its_owner_may_enter_has_a_database(locked: Path) -> None:
    sockets = locked / "s"
    sockets.mkdir()
    command = [sys.executable, "-m", "local.stack.postgres"]
    command += ["--data-dir", str(sockets / "data"), "--socket-dir", str(sockets)]
    path = os.pathsep.join([str(locked), str(REPOSITORY)])
    server = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert _asked(sockets, server) == (DATABASE_USER,)
        running = Path(f"/proc/{server.pid}/exe").resolve()
        assert running.is_relative_to(locked)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)


def _asked(sockets: Path, server: subprocess.Popen[str]) -> tuple[str, ...] | None:
    """Return who we are to the database, once it answers."""
    while server.poll() is None:
        try:
            connection = psycopg2.connect(host=str(sockets), user=DATABASE_USER, dbname="postgres")
        except psycopg2.OperationalError:
            time.sleep(0.2)
            continue
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("SELECT current_user")
            return cursor.fetchone()
    pytest.fail(server.communicate()[0])
