"""Lets a process die as if it had crashed."""

from __future__ import annotations

import psutil


def crash(pid: int) -> None:
    """Kill a process and return when it has ended, which the signal alone does not wait for."""
    process = psutil.Process(pid)
    process.kill()
    process.wait(timeout=60)
