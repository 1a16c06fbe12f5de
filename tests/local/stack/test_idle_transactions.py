"""Locks that a halted scheduler holds are freed; those of a long migration are kept."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from local.stack import settings
from local.stack.paths import RuntimePaths
from tests.local.stack.database import runtime

__all__ = ["runtime"]

Connect = Callable[[str], Connection]
LIMIT_SECONDS = 1
LOCK = "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"
URL = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


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
