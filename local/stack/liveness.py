"""Ends a scheduler that is there and does nothing, so that supervisord starts it again.

supervisord sees only processes that end. A scheduler can stay: one whose loop has failed, say
because the database went away, waits for its workers to end, and a worker that was forked at a bad
moment never does. Runs stand still then, with their TPUs.

It is an event listener (http://supervisord.org/events.html), asks Airflow's own health server of
the scheduler, which denies once the last heartbeat is older than ``[scheduler]
scheduler_health_check_threshold``, and kills: there is nothing that such a process would still put
in order, what was under way in it begins again as after any crash, and it is supervisord that
decides whether a killed part is started. So none is while the stack goes down.

``httpok`` of superlance does nearly the same, but restarts at the first bad answer, and every
scheduler gives some while it starts. Airflow's threshold cannot be raised instead: that is also
how long the tasks of a killed scheduler wait until they begin again.
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
"""So often supervisord wakes it."""
LOOK_TICKS = 3
"""Every third time it looks, since each look is a line in the scheduler's log."""
START_FACTOR = 2
"""A scheduler that has just started has so many times longer to give its first sign."""
TIMEOUT_SECONDS = 5.0
NAME = f"{Tier.AIRFLOW.name.lower()}:{SCHEDULER}"


@dataclass
class Liveness:
    """Decides when a scheduler has been silent for too long.

    It counts looks and not time, which also goes on for a stack that is frozen as a whole.

    :param seconds: for how long it may be silent.
    """

    seconds: int = DEFAULT_SECONDS
    silent: int = 0
    """Looks in a row at which the present process gave no sign."""
    pid: int | None = None

    def is_over(self, pid: int, up_seconds: float, problem: str | None) -> bool:
        """Return whether the process is to be ended.

        :param pid: the process.
        :param up_seconds: since when it runs.
        :param problem: what is wrong with its answer; None: it is alive.
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
    """Look at the scheduler once, and end it if it has been silent for too long.

    :param supervisor: supervisord's own interface; see http://supervisord.org/api.html.
    :param port: of the scheduler's health server.
    :returns: what was done, for the log; None: nothing.
    """
    try:
        process = supervisor.getProcessInfo(NAME)
        # One that is stopped, or is being stopped, is nobody's concern.
        if process["statename"] != "RUNNING":
            return None
        problem = problem_of(port)
        if not liveness.is_over(process["pid"], process["now"] - process["start"], problem):
            return None
        supervisor.signalProcess(NAME, "KILL")
    except Fault as fault:
        # The answer to everything while the stack goes down.
        return f"supervisord refuses: {fault.faultString}"
    return (
        f"The {SCHEDULER}, process {process['pid']}, has given no sign of life for "
        f"{liveness.seconds} s ({problem}). It has been killed, and supervisord starts it again."
    )


def problem_of(port: int) -> str | None:
    """Return what is wrong with what the health server answers, None if the scheduler is alive."""
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
    """Return whether a tick is of some time ago: looks in quick succession show nothing.

    :param payload: of the event, ``when:`` and the time at which it was due.
    """
    return now - int(payload.partition(":")[2]) > 2 * TICK_SECONDS


def seconds_of(text: str | None) -> int:
    """Return for how long a scheduler may be silent.

    :param text: of the setting, if there is one.
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
    """Look whenever supervisord says that it is time."""
    parser = argparse.ArgumentParser(prog="python -m local.stack.liveness", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="of the scheduler's health server")
    port = parser.parse_args(argv).port
    liveness = Liveness(seconds_of(os.environ.get(SILENT_SECONDS)))
    ticks = 0
    while True:
        _, payload = childutils.listener.wait(sys.stdin, sys.stdout)
        # supervisord keeps those that nobody took, and hands them out all at once.
        late = is_late(payload, time.time())
        ticks += not late
        if not late and ticks % LOOK_TICKS == 0:
            # A connection of its own each time: one that is kept may be dead.
            done = look(childutils.getRPCInterface(os.environ).supervisor, port, liveness)
            if done is not None:
                print(time.strftime("%Y-%m-%d %H:%M:%S"), done, file=sys.stderr, flush=True)
        childutils.listener.ok(sys.stdout)


if __name__ == "__main__":
    main()
