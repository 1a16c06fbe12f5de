"""Kills a scheduler that runs but does nothing, so that supervisord restarts it.

supervisord detects only processes that end. A scheduler can hang: one whose loop has failed, for
example because the database went away, waits for its workers to end, and a worker that was forked
at a bad moment never does. Runs then stand still, with their TPUs.

This is an event listener (http://supervisord.org/events.html). It polls Airflow's own health server
of the scheduler, which reports failure once the last heartbeat is older than ``[scheduler]
scheduler_health_check_threshold``, and kills the scheduler: such a process would not clean up
anything, its work restarts as after any crash, and supervisord decides whether a killed part is
restarted. So none is restarted while the stack goes down.

``httpok`` of superlance does nearly the same, but restarts at the first bad answer, and every
scheduler gives some while it starts. Airflow's threshold cannot be raised instead: it is also the
time after which the tasks of a killed scheduler are restarted.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xmlrpc.client import Fault

from supervisor import childutils

from local.stack.parts import SCHEDULER, Tier
from local.stack.ports import HOST
from local.stack.settings import SILENT_SECONDS

DEFAULT_SECONDS = 120
TICK_SECONDS = 5
"""Interval at which supervisord wakes this listener."""
LOOK_TICKS = 3
"""Ticks per poll, as each poll is a line in the scheduler's log."""
START_FACTOR = 2
"""Factor on the timeout for a scheduler that has just started."""
TIMEOUT_SECONDS = 5.0
NAME = f"{Tier.AIRFLOW.name.lower()}:{SCHEDULER}"


@dataclass
class Liveness:
    """Decides when a scheduler has gone without a heartbeat for too long.

    It counts polls and not time, which would also pass while the whole stack is frozen.

    :param seconds: the timeout.
    """

    seconds: int = DEFAULT_SECONDS
    silent: int = 0
    """Consecutive polls at which the current process was not alive."""
    pid: int | None = None

    def is_over(self, pid: int, up_seconds: float, problem: str | None) -> bool:
        """Return whether the process must be killed.

        :param pid: the process.
        :param up_seconds: how long it has been running.
        :param problem: the problem with its answer; None: it is alive.
        """
        if problem is None or pid != self.pid:
            self.silent = 0
        self.pid = pid
        if problem is None:
            return False
        self.silent += 1
        long_silent = self.silent * LOOK_TICKS * TICK_SECONDS >= self.seconds
        return long_silent and up_seconds >= START_FACTOR * self.seconds


def look(supervisor: Any, port: int, liveness: Liveness) -> str | None:
    """Poll the scheduler once, and kill it if it has had no heartbeat for too long.

    :param supervisor: supervisord's own interface; see http://supervisord.org/api.html.
    :param port: port of the scheduler's health server.
    :returns: the action taken, for the log; None: no action.
    """
    try:
        process = supervisor.getProcessInfo(NAME)
        # A scheduler that is stopped or being stopped is ignored.
        if process["statename"] != "RUNNING":
            return None
        problem = problem_of(port)
        if not liveness.is_over(process["pid"], process["now"] - process["start"], problem):
            return None
        supervisor.signalProcess(NAME, "KILL")
    except Fault as fault:
        # supervisord refuses all calls while the stack goes down.
        return f"supervisord refuses: {fault.faultString}"
    return (
        f"The {SCHEDULER}, process {process['pid']}, has given no sign of life for "
        f"{liveness.seconds} s ({problem}). It has been killed, and supervisord starts it again."
    )


def problem_of(port: int) -> str | None:
    """Return the problem with the health server's answer, or None if the scheduler is alive."""
    server = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_SECONDS)
    try:
        server.request("GET", "/health")
        status = server.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"port {port}: {error!r}"
    finally:
        server.close()
    return None if status == http.client.OK else f"port {port} answers with status {status}"


def is_late(payload: str, now: float) -> bool:
    """Return whether a tick is late: polls in quick succession show nothing.

    :param payload: the event's payload, ``when:`` and the time at which the tick was due.
    """
    return now - int(payload.partition(":")[2]) > 2 * TICK_SECONDS


def seconds_of(text: str | None) -> int:
    """Return the timeout for a scheduler without a heartbeat.

    :param text: value of the setting; None or empty: the default.
    """
    if not text:
        return DEFAULT_SECONDS
    if not text.isdecimal() or int(text) < 1:
        sys.exit(
            f"{SILENT_SECONDS}={text!r} is no number of seconds until a silent scheduler is ended. "
            f"Set a whole number from 1, or leave it out: then it is {DEFAULT_SECONDS}."
        )
    return int(text)


def main(argv: Sequence[str] | None = None) -> None:
    """Poll the scheduler at supervisord's ticks, forever."""
    parser = argparse.ArgumentParser(prog="python -m local.stack.liveness", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="of the scheduler's health server")
    port = parser.parse_args(argv).port
    liveness = Liveness(seconds_of(os.environ.get(SILENT_SECONDS)))
    ticks = 0
    while True:
        _, payload = childutils.listener.wait(sys.stdin, sys.stdout)
        # supervisord buffers ticks that were not handled, and delivers them all at once.
        late = is_late(payload, time.time())
        ticks += not late
        if not late and ticks % LOOK_TICKS == 0:
            # A new connection each time: a kept one may be dead.
            done = look(childutils.getRPCInterface(os.environ).supervisor, port, liveness)
            if done is not None:
                print(time.strftime("%Y-%m-%d %H:%M:%S"), done, file=sys.stderr, flush=True)
        childutils.listener.ok(sys.stdout)


if __name__ == "__main__":
    main()
