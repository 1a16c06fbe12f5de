"""Reads the parts' log files."""

from __future__ import annotations

from collections import deque
from pathlib import Path


def last_lines(log: Path, count: int) -> str:
    """Return the last lines of a log, or a remark that there is none."""
    try:
        with log.open(errors="replace") as lines:
            return "".join(deque(lines, maxlen=count)) or "(the log is empty)"
    except FileNotFoundError:
        return "(there is no log)"
