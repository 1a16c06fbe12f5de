"""Whose session it is that holds rows of runs, asked of a real PostgreSQL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest

from local.stack import parts, settings
from local.stack.paths import RuntimePaths
from tests.local.stack.database import runtime
from verification.scheduler_kill_check.killing import HOLDS_RUNS

__all__ = ["runtime"]


@pytest.fixture
def connect(runtime: RuntimePaths, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def run(part: str) -> Any:
            # As the launcher has it in the environment of the part.
            monkeypatch.setenv(settings.SESSION_NAME, part)
            connection = psycopg2.connect(settings.database_url("", runtime))
            stack.callback(connection.close)
            return connection

        yield run


def test_only_sessions_of_this_scheduler_count(connect: Any) -> None:
    looker = connect("check")
    looker.autocommit = True
    cursor = looker.cursor()
    cursor.execute("CREATE TABLE dag_run (id int); INSERT INTO dag_run VALUES (1), (2), (3)")

    def hold(part: str, run: int) -> None:
        connect(part).cursor().execute(
            "SELECT id FROM dag_run WHERE id = %s FOR UPDATE SKIP LOCKED", (run,)
        )

    def held(since: float) -> int:
        cursor.execute(HOLDS_RUNS, (parts.SCHEDULER, since))
        return int(cursor.fetchone()[0])

    begun = time.time() - 1
    hold(parts.TRIGGERER, 1)
    assert held(begun) == 0
    hold(parts.SCHEDULER, 2)  # one whose scheduler is dead
    assert held(begun) == 1
    restarted = time.time()
    assert held(restarted) == 0
    hold(parts.SCHEDULER, 3)
    assert held(restarted) == 1
