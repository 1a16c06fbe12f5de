"""Finds and ends every process of the agent's jobs, also those of an agent that was killed.

A job's environment carries a marker, which its children inherit, wherever they move. Unlike a pid
file, it cannot be missing because the agent died between starting a job and recording it, and it
cannot refer to an unrelated process because the pid was reused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARKER = "REPRETRAIN_AGENT_WORK_DIR"

_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.05
_PROC = Path("/proc")


def marked(work_dir: Path) -> list[int]:
    """Return the living processes of the jobs of the agent with this work folder."""
    return [int(entry.name) for entry in _PROC.iterdir() if _is_marked(entry, work_dir)]


def end(work_dir: Path, grace: float) -> list[int]:
    """End all processes: SIGTERM to the jobs, SIGKILL to the rest after the grace period.

    :returns: the processes that were found.
    :raises RuntimeError: as :func:`kill`.
    """
    found = marked(work_dir)
    for pid in found:
        # Only the job itself: its helpers are needed until it has saved its checkpoint.
        if leads_group(pid):
            send(pid, work_dir, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while marked(work_dir) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    kill(work_dir)
    return found


def kill(work_dir: Path) -> None:
    """Send SIGKILL until no process is left.

    :raises RuntimeError: one survives; starting another job next to it would damage both.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while alive := marked(work_dir):
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"Processes {alive} of a job survive SIGKILL, so no job can be started: the TPU "
                "device would be used twice. Replace this TPU VM."
            )
        for pid in alive:
            send(pid, work_dir, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def send(pid: int, work_dir: Path, number: signal.Signals) -> None:
    """Send a signal to a process if it is alive and belongs to this agent's jobs."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            # Checked again now that the descriptor pins the process: the pid may be reused.
            if _is_marked(_PROC / str(pid), work_dir):
                signal.pidfd_send_signal(process, number)
        finally:
            os.close(process)


def leads_group(pid: int) -> bool:
    """Return whether a process is a job itself, not one of its helpers."""
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def _is_marked(entry: Path, work_dir: Path) -> bool:
    if not entry.name.isdigit():
        return False
    try:
        environment = (entry / "environ").read_bytes()
    except OSError:  # it has just ended, or it is another user's
        return False
    return f"{MARKER}={work_dir}".encode() in environment.split(b"\0")
