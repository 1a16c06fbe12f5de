"""Runs a command and ends it with all its children once the calling process is gone.

``python process_guard.py SECONDS COMMAND ...``, with the caller at the other end of stdin.

It is a separate program, of the standard library alone, because Airflow kills a task's process five
seconds after asking it to stop, whatever it is doing: too early for a job that first has to cancel
its work in the cloud, and nothing would be left to kill processes that do not stop by themselves.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

_SECONDS_BETWEEN_LOOKS = 0.1


def run(command: list[str], grace_seconds: float) -> int:
    """Run the command to its end, or until stdin is closed; return its code as ``Popen`` does.

    Its process group then gets SIGTERM; processes left after ``grace_seconds`` are killed. This
    includes children that outlive the command.
    """
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    while child.poll() is None and not told and not _stdin_is_closed():
        pass
    if _signal_group(child, signal.SIGTERM):
        deadline = time.monotonic() + grace_seconds
        while _signal_group(child, 0) and time.monotonic() < deadline:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        _signal_group(child, signal.SIGKILL)
    return child.wait()


def _stdin_is_closed() -> bool:
    """Wait for a moment and return whether the caller is gone; it never writes anything."""
    return bool(select.select([sys.stdin], [], [], _SECONDS_BETWEEN_LOOKS)[0])


def _signal_group(child: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the command and its children; return False when none of them is left."""
    child.poll()  # a dead process that was not waited for still counts as part of its group
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    """Run the command line; exit with the command's code, or by the signal that ended it."""
    code = run(sys.argv[2:], float(sys.argv[1]))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
