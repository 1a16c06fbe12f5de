"""Stops the parts and proves that no process and no port of the stack is left."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable

from local_stack import ports, processes
from local_stack.errors import StackError
from local_stack.paths import StatePaths
from local_stack.record import ProcessId, StackRecord

# The sum over the tiers of what their slowest part may take, and a little.
ORDERLY_SECONDS = 100.0
LEFTOVER_SECONDS = 10.0
POLL_SECONDS = 0.2


def stop(paths: StatePaths, record: StackRecord, say: Callable[[str], None]) -> bool:
    """Stop the stack in reverse order, end what is left, and remove the sockets.

    :param paths: the state folder.
    :param record: what the last start left.
    :param say: receives progress.
    :returns: whether there was anything to stop.
    :raises StackError: a process survived, or one of the ports is still open.
    """
    found = processes.find(paths)
    if found:
        say(f"Stopping {len(found)} processes ...")
        if record.supervisor is not None:
            _stop_in_order(record.supervisor)
        _end_leftovers(paths, say)
        _check_ports(record)
    shutil.rmtree(record.runtime_dir, ignore_errors=True)
    return bool(found)


def _stop_in_order(supervisor: ProcessId) -> None:
    if not supervisor.is_running():
        return
    # On this signal supervisord stops tier after tier. Its socket is not needed for that, which
    # somebody may have removed from the temporary folder.
    os.kill(supervisor.pid, signal.SIGTERM)
    deadline = time.monotonic() + ORDERLY_SECONDS
    while supervisor.is_running() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _end_leftovers(paths: StatePaths, say: Callable[[str], None]) -> None:
    leftovers = processes.find(paths)
    for process in leftovers:
        say(f"  ending what was left: {processes.describe(process)}")
    processes.end(leftovers, LEFTOVER_SECONDS)
    # Looked for anew: one that was ending may have started another.
    survivors = [processes.describe(process) for process in processes.find(paths)]
    if survivors:
        raise StackError("These processes of the stack do not end:\n  " + "\n  ".join(survivors))


def _check_ports(record: StackRecord) -> None:
    taken = [f"{name} {port}" for name, port in record.ports.items() if not ports.is_free(port)]
    if taken:
        raise StackError(
            f"All processes of the stack ended, but its ports are in use: {', '.join(taken)}. "
            "Look with `ss -ltnp` which program listens there."
        )
