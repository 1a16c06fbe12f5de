"""Locks that a halted scheduler holds are freed; those of a long migration are kept."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from local.stack import settings
from local.stack.paths import REPOSITORY, RuntimePaths

Connect = Callable[[str], Connection]
LIMIT_SECONDS = 1
LOCK = "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"
URL = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


@pytest.fixture(scope="module")
def runtime() -> Iterator[RuntimePaths]:
    """Run the stack's PostgreSQL. Its socket has to have a short path."""
    with tempfile.TemporaryDirectory(prefix="idle-", dir="/tmp") as folder:
        runtime = RuntimePaths(Path(folder))
        runtime.root.chmod(0o755)
        runtime.database.mkdir()
        command = [sys.executable, "-P", "-m", "local.stack.postgres"]
        command += ["--data-dir", f"{folder}/data", "--socket-dir", str(runtime.database)]
        server = subprocess.Popen(command, env={"PYTHONPATH": str(REPOSITORY), "PATH": _PATH})
        try:
            _wait(runtime, server)
            yield runtime
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=60)


_PATH = settings.search_path()


def _wait(runtime: RuntimePaths, server: subprocess.Popen[bytes]) -> None:
    engine = create_engine(settings.database_url("+psycopg2", runtime))
    while server.poll() is None:
        with contextlib.suppress(OperationalError), engine.begin() as connection:
            connection.execute(text("CREATE TABLE IF NOT EXISTS runs (id int)"))
            engine.dispose()
            return
        time.sleep(0.2)
    pytest.fail("PostgreSQL does not start")


@pytest.fixture
def connect(runtime: RuntimePaths, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connect as Airflow does; the limit is a second."""
    monkeypatch.setattr(settings, "IDLE_TRANSACTION_SECONDS", LIMIT_SECONDS)
    with contextlib.ExitStack() as stack:

        def run(url: str) -> Connection:
            engine = create_engine(url)
            stack.callback(engine.dispose)
            connection = engine.connect()
            stack.callback(connection.close)
            return connection

        yield run


def test_what_a_halted_scheduler_locks_is_free_after_the_limit(
    runtime: RuntimePaths, connect: Connect
) -> None:
    halted = connect(settings.impatient_database(runtime)[URL])
    halted.execute(text(LOCK))
    time.sleep(LIMIT_SECONDS + 1.5)
    successor = connect(settings.impatient_database(runtime)[URL])
    successor.execute(text("SET lock_timeout = '5s'"))
    successor.execute(text(LOCK))
    # One that goes on after all does not believe that its transaction was made.
    with pytest.raises(OperationalError):
        halted.execute(text("SELECT 1"))
    assert halted.invalidated


def test_a_migration_that_is_idle_for_longer_keeps_its_lock(
    runtime: RuntimePaths, connect: Connect
) -> None:
    """``airflow db migrate`` takes its lock in one session, and works in another."""
    migration = connect(settings.database_url("+psycopg2", runtime))
    migration.execute(text("SELECT pg_advisory_lock(1)"))
    migration.execute(text(LOCK))
    time.sleep(LIMIT_SECONDS + 1.5)
    other = connect(settings.database_url("+psycopg2", runtime))
    other.execute(text("SET lock_timeout = '200ms'"))
    with pytest.raises(OperationalError, match="lock timeout"):
        other.execute(text(LOCK))
    migration.execute(text("INSERT INTO runs VALUES (1)"))
    migration.commit()


def test_a_session_between_transactions_is_never_ended(
    runtime: RuntimePaths, connect: Connect
) -> None:
    session = connect(settings.impatient_database(runtime)[URL])
    session.execute(text("SELECT 1"))
    session.commit()
    time.sleep(LIMIT_SECONDS + 1.5)
    assert session.execute(text("SELECT 2")).scalar() == 2
