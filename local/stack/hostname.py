"""Defines the host name that Airflow records for each task: the loopback interface."""

from __future__ import annotations


def loopback() -> str:
    """Return the address of the task log server.

    Airflow fetches the log of a running task from the recorded host name; the machine's own name
    may resolve to an external address, on which nothing in this stack listens.
    """
    return "127.0.0.1"
