"""The real scheduler, killed alone or halted for longer than its database sessions may idle."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest

from local.stack import parts, processes, settings
from local.stack.airflow_api import AirflowApi, TaskInstance
from local.stack.breaking import Breaker
from local.stack.paths import RuntimePaths
from local.stack.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200)]
DAGS = Path(__file__).parent / "dags"
PATIENCE = 300.0
GOES_ON_SECONDS = 90.0
IDLE = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    state = tmp_path_factory.mktemp("killed") / "stack"
    with Stack(state, extra_environment={"AIRFLOW__CORE__DAGS_FOLDER": str(DAGS)}) as stack:
        yield stack


@pytest.fixture
def api(stack: Stack) -> Iterator[AirflowApi]:
    with stack.api() as api:
        for dag_id in ("probe", "probe_waiting"):
            api.wait_for_dag(dag_id)
            api.unpause(dag_id)
        yield api


def _hold(api: AirflowApi, run_id: str, after: TaskInstance | None = None) -> TaskInstance:
    """Wait until the task that holds runs, or runs again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for task in api.task_instances("probe_waiting", run_id):
            begun = task.task_id == "hold" and task.state == "running"
            if begun and (after is None or task.start != after.start):
                return task
        assert time.monotonic() < deadline
        time.sleep(0.5)


def _scheduler(stack: Stack) -> psutil.Process:
    [part] = [part for part in stack.status().parts if part.name == parts.SCHEDULER]
    assert part.pid is not None
    return psutil.Process(part.pid)


def _idle_sessions(stack: Stack) -> int:
    """Return how many sessions are idle within a transaction, and still are a second later."""
    url = settings.database_url("", RuntimePaths.of(stack.paths.root))
    counts = []
    for _ in range(3):
        with contextlib.closing(psycopg2.connect(url)) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(IDLE)
            counts.append(int(cursor.fetchone()[0]))
        time.sleep(0.5)
    return min(counts)


def test_what_ran_in_a_killed_scheduler_begins_again_soon(stack: Stack, api: AirflowApi) -> None:
    run_id = api.trigger("probe_waiting")
    first = _hold(api, run_id)
    scheduler = _scheduler(stack)
    # Of all kinds: idle workers, the task's supervisor, the task, and what the task has started.
    left = scheduler.children(recursive=True)
    assert len(left) >= 6

    Breaker(stack).kill(parts.SCHEDULER)
    begun = time.monotonic()

    again = _hold(api, run_id, after=first)
    assert time.monotonic() - begun < GOES_ON_SECONDS
    assert again.try_number == first.try_number + 1
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in left)
    assert "launcher: ended" in stack.paths.log(parts.SCHEDULER).read_text()
    marked = {process.pid for process in processes.find(stack.paths, parts.SCHEDULER)}
    own = _scheduler(stack)
    assert marked == {own.pid, *(child.pid for child in own.children(recursive=True))}
    api.mark_run("probe_waiting", run_id, "failed")


def test_a_scheduler_that_is_halted_for_longer_than_the_limit_goes_on(
    stack: Stack, api: AirflowApi
) -> None:
    Breaker(stack).wait_ready()
    scheduler = _scheduler(stack)
    # Until the halt hits a transaction, which is what PostgreSQL puts an end to.
    deadline = time.monotonic() + PATIENCE
    os.kill(scheduler.pid, signal.SIGSTOP)
    try:
        while not _idle_sessions(stack):
            assert time.monotonic() < deadline, "the scheduler was never within a transaction"
            os.kill(scheduler.pid, signal.SIGCONT)
            time.sleep(0.2)
            os.kill(scheduler.pid, signal.SIGSTOP)
        run_id = api.trigger("probe")
        halted = time.monotonic()
        while _idle_sessions(stack):
            assert time.monotonic() - halted < settings.IDLE_TRANSACTION_SECONDS + 30
        # Not only for other reasons than the limit.
        assert time.monotonic() - halted > settings.IDLE_TRANSACTION_SECONDS - 15
    finally:
        os.kill(scheduler.pid, signal.SIGCONT)
    assert api.wait_for_run("probe", run_id, seconds=PATIENCE).state == "success"
    Breaker(stack).wait_ready()
