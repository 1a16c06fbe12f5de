"""Finds and ends every process of a VM, also those that left its session or process group."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import psutil

VM_VARIABLE = "TPU_EMULATOR_VM"
"""Marks every process of a VM: `<zone>/<node id>/w<worker number>`."""
STATE_VARIABLE = "TPU_EMULATOR_STATE_DIR"
"""Distinguishes the VMs of this emulator from those of another one on the same machine."""

_RESCAN_SECONDS = 0.5
_POLL_SECONDS = 0.02
# Start times are computed from the boot time, which moves when the clock is corrected.
_CLOCK_DRIFT_SECONDS = 2.0


def find(state_dir: str, sessions: Mapping[int, str]) -> dict[str, list[psutil.Process]]:
    """The living processes of all VMs of one emulator, by VM marker.

    A process belongs to a VM when its environment carries the marker, when it is in the session
    of the VM's startup script, or when its parent belongs to the VM. Not found is a process that
    cleared its environment, made its own session, and whose parent has exited.

    Args:
        state_dir: the emulator's state folder, the value of `STATE_VARIABLE`.
        sessions: marker by session id (the pid of the startup script).
    """
    markers: dict[int, str] = {}
    unclaimed: dict[int, psutil.Process] = {}
    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        marker = None if process.pid == os.getpid() else _marker(process, state_dir, sessions)
        if marker is None:
            unclaimed[process.pid] = process
        else:
            markers[process.pid] = marker
            found.setdefault(marker, []).append(process)
    while adopted := _claimed_by_parent(unclaimed.values(), markers):
        for process, marker in adopted:
            del unclaimed[process.pid]
            markers[process.pid] = marker
            found.setdefault(marker, []).append(process)
    return found


def is_same_process(pid: int, started: float) -> bool:
    """Whether this pid still is the process that was started at this time (not a reused pid)."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        drift = abs(process.create_time() - started)
        return drift < _CLOCK_DRIFT_SECONDS and process.status() != psutil.STATUS_ZOMBIE
    return False


def terminate(
    scan: Callable[[], list[psutil.Process]], *, grace: float, hurry: threading.Event
) -> None:
    """Sends SIGTERM once, waits up to `grace` seconds (or until `hurry`), sends SIGKILL.

    Returns when two scans in a row found nothing, so nothing that was forked meanwhile is left.

    Raises:
        TimeoutError: something survives SIGKILL; names the pids.
    """
    deadline = time.monotonic() + grace
    alive = scan()
    # Only once: processes that start afterwards are cleaning up, and must be able to.
    _signal(alive, signal.SIGTERM)
    while alive and time.monotonic() < deadline and not hurry.is_set():
        wait(alive, min(_RESCAN_SECONDS, deadline - time.monotonic()), hurry)
        alive = scan()
    kill(scan)


def kill(scan: Callable[[], list[psutil.Process]], *, patience: float = 10.0) -> None:
    """Sends SIGKILL until two scans in a row find nothing.

    Raises:
        TimeoutError: as `terminate`.
    """
    deadline = time.monotonic() + patience
    empty_scans = 0
    while empty_scans < 2:
        alive = scan()
        empty_scans = 0 if alive else empty_scans + 1
        if alive and time.monotonic() > deadline:
            raise TimeoutError(f"processes survive SIGKILL: {sorted(p.pid for p in alive)}")
        _signal(alive, signal.SIGKILL)
        wait(alive, _RESCAN_SECONDS)


def freeze(scan: Callable[[], list[psutil.Process]], *, patience: float = 10.0) -> None:
    """Sends SIGSTOP until two scans in a row find nothing that runs.

    Raises:
        TimeoutError: something keeps running; names the pids.
    """
    deadline = time.monotonic() + patience
    quiet_scans = 0
    while quiet_scans < 2:
        running = [process for process in scan() if not _is_stopped(process)]
        quiet_scans = 0 if running else quiet_scans + 1
        if running and time.monotonic() > deadline:
            raise TimeoutError(f"processes ignore SIGSTOP: {sorted(p.pid for p in running)}")
        _signal(running, signal.SIGSTOP)
        time.sleep(_POLL_SECONDS)


def _is_stopped(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() == psutil.STATUS_STOPPED
    return True  # it has ended


def _marker(process: psutil.Process, state_dir: str, sessions: Mapping[int, str]) -> str | None:
    with contextlib.suppress(psutil.Error, OSError):
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        environment = process.environ()
        if environment.get(STATE_VARIABLE) == state_dir and VM_VARIABLE in environment:
            return environment[VM_VARIABLE]
        return sessions.get(os.getsid(process.pid))
    return None


def _claimed_by_parent(
    unclaimed: Iterable[psutil.Process], markers: Mapping[int, str]
) -> list[tuple[psutil.Process, str]]:
    claimed = []
    for process in unclaimed:
        with contextlib.suppress(psutil.Error):
            marker = markers.get(process.ppid())
            if marker and _is_alive(process):
                claimed.append((process, marker))
    return claimed


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def wait(
    running: Iterable[psutil.Process], seconds: float, hurry: threading.Event | None = None
) -> None:
    """Waits until all have ended, the seconds are over, or `hurry` is set.

    Polls instead of waiting for the process: reaping a child here would take the exit code from
    the thread that waits for it.
    """
    deadline = time.monotonic() + seconds
    while any(map(_is_alive, running)) and time.monotonic() < deadline:
        if hurry is not None and hurry.is_set():
            return
        time.sleep(_POLL_SECONDS)


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
