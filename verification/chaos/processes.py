"""Forks the orchestrator's processes, which can be killed at any moment, from a warm one."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

_context = multiprocessing.get_context("forkserver")
# It has loaded Airflow and opened no connections, so forking from it is safe and fast.
_context.set_forkserver_preload(["verification.chaos.tasks"])


class Forked:
    """A process that executes one call and returns a reply.

    :param body: name of a function in :mod:`verification.chaos.tasks`. It is a name because this
        process does not load Airflow.
    :param call: the function's argument.
    """

    def __init__(self, body: str, call: Any) -> None:
        self.call = call
        self._channel, theirs = _context.Pipe()
        self._process = _context.Process(target=_run, args=(body, theirs, call), daemon=True)
        self._process.start()
        theirs.close()
        self._reply: dict[str, Any] | None = None

    def poll(self, seconds: float) -> bool:
        """Return whether it has ended, waiting at most this long for a reply."""
        try:
            if self._reply is None and self._channel.poll(seconds):
                self._reply = self._channel.recv()
        except EOFError:
            self._process.join()
        return not self._process.is_alive()

    @property
    def reply(self) -> dict[str, Any] | None:
        """The reply; None if it was killed before."""
        return self._reply

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is alive."""
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()


def _run(body: str, channel: Connection, call: Any) -> None:
    getattr(importlib.import_module("verification.chaos.tasks"), body)(channel, call)
