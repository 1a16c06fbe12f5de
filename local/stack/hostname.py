"""The host name that Airflow writes next to each task: the loopback interface."""

from __future__ import annotations


def loopback() -> str:
    """Return the address under which the task log server can be reached.

    Airflow fetches the log of a running task from the recorded host name; the machine's own name
    may resolve to an outside address, on which nothing of this stack listens.
    """
    return "127.0.0.1"
