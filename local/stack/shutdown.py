"""Stops the parts and proves that no process and no port of the stack is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping

from local.stack import ports, processes
from local.stack.paths import RuntimePaths, StackError, StatePaths
from local.stack.supervision import ProcessId, StackRecord

LEFTOVER_SECONDS = 10.0
POLL_SECONDS = 0.2


def stop(paths: StatePaths, record: StackRecord | None, say: Callable[[str], None]) -> bool:
    """Stop the stack in reverse order, end leftover processes, and remove the sockets.

    :param paths: the state folder.
    :param record: the record of the last start; None if it is lost.
    :param say: receives progress.
    :returns: whether there was anything to stop.
    :raises StackError: a process survived, or one of the ports is still open.
    """
    found = processes.find(paths)
    supervisor = record.supervisor if record else None
    supervised = supervisor is not None and supervisor.is_running()
    if found or supervised:
        say(f"Stopping {len(found)} processes ...")
        if record is not None and supervisor is not None and supervised:
            _stop_in_order(supervisor, record.stop_seconds)
        _end_leftovers(paths, say)
        _check_ports(record.ports if record else {})
    runtime_dir = record.runtime_dir if record else RuntimePaths.of(paths.root).root
    shutil.rmtree(runtime_dir, ignore_errors=True)
    return bool(found) or supervised


def _stop_in_order(supervisor: ProcessId, seconds: float) -> None:
    # On this signal supervisord stops tier after tier. Unlike a call, it does not need the socket,
    # which may have been removed from the temporary folder.
    with contextlib.suppress(ProcessLookupError):  # it may have ended since the check
        os.kill(supervisor.pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while supervisor.is_running() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _end_leftovers(paths: StatePaths, say: Callable[[str], None]) -> None:
    leftovers = processes.find(paths)
    for process in leftovers:
        say(f"  ending what was left: {processes.describe(process)}")
    processes.end(leftovers, LEFTOVER_SECONDS)
    # Searched again: a process that was ending may have started another.
    survivors = [processes.describe(process) for process in processes.find(paths)]
    if survivors:
        raise StackError("These processes of the stack do not end:\n  " + "\n  ".join(survivors))


def _check_ports(used: Mapping[str, int]) -> None:
    taken = [f"{name} {port}" for name, port in used.items() if not ports.is_free(port)]
    if taken:
        raise StackError(
            f"All processes of the stack ended, but its ports are in use: {', '.join(taken)}. "
            "Look with `ss -ltnp` which program listens there."
        )
