"""Kills the scheduler's main process while it holds locks on rows of runs, if it does so soon."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable

import psutil
import psycopg2  # type: ignore[import-untyped]

from local.stack import parts, settings
from local.stack.paths import RuntimePaths, StackError
from local.stack.stack import Stack

PATIENCE_SECONDS = 15.0
SETTLE_SECONDS = 0.03
"""Pause after a halt, for PostgreSQL to answer earlier queries."""
# "Select ... for update" of runs, in a transaction whose client is idle. The launcher sets the name
# of a part's session; a session of an earlier scheduler, which its workers may hold, began before
# this scheduler did.
HOLDS_RUNS = """
    SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid)
    WHERE state LIKE 'idle in transaction%%' AND granted
      AND mode = 'RowShareLock' AND relation = 'dag_run'::regclass
      AND application_name = %s AND backend_start >= to_timestamp(%s)
"""


def kill_scheduler(stack: Stack, draw: random.Random, look: Callable[[], None]) -> bool:
    """Send SIGKILL only to the scheduler's main process.

    It is halted briefly, checked, and resumed until a halt hits it while it holds locks on rows of
    runs: these make runs freeze, and a kill at any other moment shows little.

    :param draw: decides when it is halted.
    :param look: called directly before the kill, while the scheduler is halted: it sees what the
        kill interrupts.
    :returns: whether it held rows; if it did not within :data:`PATIENCE_SECONDS`, it is killed
        anyway.
    :raises StackError: it does not run.
    """
    pid = stack.supervisor().processes()[parts.SCHEDULER].pid
    if pid is None:
        raise StackError("The scheduler does not run, so it cannot be killed. Look at its log.")
    scheduler = psutil.Process(pid)
    its_sessions = (parts.SCHEDULER, scheduler.create_time())
    url = settings.database_url("", RuntimePaths.of(stack.paths.root))
    deadline = time.monotonic() + PATIENCE_SECONDS
    with contextlib.closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        while True:
            scheduler.send_signal(signal.SIGSTOP)
            time.sleep(SETTLE_SECONDS)
            cursor.execute(HOLDS_RUNS, its_sessions)
            holds_runs = cursor.fetchone() != (0,)
            if holds_runs or time.monotonic() > deadline:
                try:
                    look()
                finally:
                    # Even if it failed: a halted scheduler would stay halted.
                    scheduler.kill()
                return holds_runs
            scheduler.send_signal(signal.SIGCONT)
            time.sleep(draw.uniform(0.01, 0.2))
