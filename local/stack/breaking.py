"""Breaks parts of a running stack, for tests of what survives."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable

import psutil

from local.stack.parts import Part
from local.stack.paths import StackError
from local.stack.stack import Stack

PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.3


class Breaker:
    """Kills, freezes, halts and starts single parts.

    :param stack: a running stack.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._supervisor = stack.supervisor()
        self._parts = {part.name: part for part in stack.parts()}

    def kill(self, name: str, *, children: bool = False) -> None:
        """Send SIGKILL to a part, which is then restarted.

        :param children: whether all of its child processes are killed too.
        :raises StackError: it does not run.
        """
        process = self._process(name)
        for victim in [process, *(process.children(recursive=True) if children else [])]:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()

    def freeze(self, name: str) -> None:
        """Suspend a part with all of its child processes.

        :raises StackError: it does not run.
        """
        process = self._process(name)
        _signal([process, *process.children(recursive=True)], signal.SIGSTOP)

    def halt(self, names: Iterable[str]) -> None:
        """Send SIGKILL to parts and their child processes; :meth:`start` brings them back.

        None of them can react: all are suspended before the first of them is stopped.

        :raises StackError: one does not run, or does not end.
        """
        victims: dict[str, list[psutil.Process]] = {}
        for name in names:
            process = self._process(name)
            victims[name] = [process, *process.children(recursive=True)]
        everyone = [process for found in victims.values() for process in found]
        _signal(everyone, signal.SIGSTOP)
        for name in victims:
            self._supervisor.stop(self._parts[name])
        _signal(everyone, signal.SIGKILL)
        self._wait(victims, frozenset({"STOPPED", "EXITED"}))

    def stop(self, name: str) -> None:
        """Stop a part gracefully and wait until it has ended; :meth:`start` brings it back.

        :raises StackError: it does not end.
        """
        self._supervisor.stop(self._part(name))
        self._wait([name], frozenset({"STOPPED", "EXITED"}))

    def start(self, names: Iterable[str]) -> None:
        """Start parts that were halted or stopped, and wait until they are healthy.

        :raises StackError: one does not become healthy in time.
        """
        names = list(names)
        for name in names:
            self._supervisor.start(self._part(name))
        self.wait_ready(names)

    def wait_ready(self, names: Iterable[str] = ()) -> None:
        """Wait until parts are healthy.

        :param names: the parts; empty: all.
        :raises StackError: one does not become healthy in time.
        """
        wanted = set(names) or set(self._parts)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while problems := {
            part.name: part.problem
            for part in self._stack.status().parts
            if part.name in wanted and part.problem is not None
        }:
            if time.monotonic() > deadline:
                raise StackError(f"Not working after {PATIENCE_SECONDS:.0f} s: {problems}")
            time.sleep(POLL_SECONDS)

    def _part(self, name: str) -> Part:
        if name not in self._parts:
            raise StackError(f"No part is called {name!r}; there are: {', '.join(self._parts)}.")
        return self._parts[name]

    def _process(self, name: str) -> psutil.Process:
        self._part(name)
        pid = self._supervisor.processes()[name].pid
        if pid is None:
            raise StackError(f"{name} does not run, so it cannot be killed.")
        return psutil.Process(pid)

    def _wait(self, names: Iterable[str], states: frozenset[str]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self._supervisor.processes()
            left = [name for name in names if found[name].state not in states]
            if not left:
                return
            if time.monotonic() > deadline:
                raise StackError(f"{', '.join(left)} did not end in {PATIENCE_SECONDS:.0f} s.")
            time.sleep(POLL_SECONDS)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
