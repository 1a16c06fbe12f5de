"""Finds the processes and listening sockets of a stack, and ends leftover processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from local.stack.paths import StatePaths
from local.stack.settings import MARKER, PART


@dataclass(frozen=True)
class Listener:
    """A TCP socket that accepts connections."""

    pid: int
    address: str
    port: int


def find(paths: StatePaths, part: str | None = None) -> list[psutil.Process]:
    """Return the processes of a stack, wherever they are in the process tree.

    A process counts if it has the stack's marker in its environment. PostgreSQL overwrites that
    memory, so its processes count if their working directory is the stack's data folder. The caller
    and its ancestors never count, and neither do zombies, which hold no resources.

    :param paths: the state folder.
    :param part: only processes that this part started, and itself; not possible for PostgreSQL.
    """
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [
        process
        for process in psutil.process_iter()
        if process.pid not in own and _belongs(process, paths, part)
    ]


def _belongs(process: psutil.Process, paths: StatePaths, part: str | None) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if process.name() == "postgres":
            # Linux adds a remark if the folder has been removed.
            here = process.cwd().removesuffix(" (deleted)") == str(paths.database)
            return here and part is None
        environment = process.environ()
        is_ours = environment.get(MARKER) == str(paths.root)
        return is_ours and part in (None, environment.get(PART))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def listeners(processes: Iterable[psutil.Process]) -> list[Listener]:
    """Return the TCP sockets on which the processes listen, sorted by port."""
    found = set()
    for process in processes:
        try:
            connections = process.net_connections(kind="inet")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        found |= {
            Listener(process.pid, connection.laddr.ip, connection.laddr.port)
            for connection in connections
            if connection.status == psutil.CONN_LISTEN
        }
    return sorted(found, key=lambda listener: (listener.port, listener.pid))


def end(processes: list[psutil.Process], patience: float) -> None:
    """Terminate processes, then kill those that do not end.

    :param patience: seconds to wait after each of the two signals.
    """
    alive = processes
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in alive:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(alive, timeout=patience)


def describe(process: psutil.Process) -> str:
    """Return one line that identifies a process."""
    try:
        command = " ".join(process.cmdline()) or process.name()
        return f"{process.pid} {command[:100]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} (gone)"
