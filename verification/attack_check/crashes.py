"""Runs work in processes that die at a chosen change of the file system, or at any moment."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

_CHANGES = ("link", "replace", "unlink", "fsync", "mkdir")
DIED = 137
FAILED = 3


def count_changes(work: Callable[[], object]) -> int:
    """Return the number of changes of the file system that some work makes.

    :raises RuntimeError: the work failed.
    """
    read, write = os.pipe()

    def counted() -> None:
        counter = _Dying(None, after=False)
        with counter:
            work()
        os.write(write, str(counter.changes).encode())

    status = in_child(counted)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    if status:
        raise RuntimeError(f"The work that is to be disturbed fails by itself ({status}).")
    return int(text)


def die_at(work: Callable[[], object], change: int, *, after: bool) -> int:
    """Run work in a process that dies before or after one change; return its exit code."""

    def dying() -> None:
        with _Dying(change, after=after):
            work()

    return in_child(dying)


def kill_at_random(work: Callable[[], object], most_seconds: float, chance: random.Random) -> bool:
    """Run work in a process that is killed at a random moment; return whether it was running."""
    pid = _fork(work)
    time.sleep(chance.uniform(0.0, most_seconds))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) < 0


def in_child(work: Callable[[], object]) -> int:
    """Run work in a child process; return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1])


def at_once(works: list[Callable[[], object]]) -> list[int]:
    """Run several works concurrently, each in a child process; return the exit codes."""
    ready, go = os.pipe()

    def together(work: Callable[[], object]) -> Callable[[], object]:
        def waits() -> None:
            os.close(go)
            os.read(ready, 1)
            work()

        return waits

    pids = [_fork(together(work)) for work in works]
    os.close(go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    os.close(ready)
    return codes


def _fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
        work()
    except BaseException:  # noqa: BLE001 - the exit code says it
        os._exit(FAILED)
    os._exit(0)


class _Dying:
    """Ends the process at a change of the file system; counts them all."""

    def __init__(self, change: int | None, *, after: bool) -> None:
        self.changes = 0
        self._change = change
        self._after = after
        self._real = {name: getattr(os, name) for name in _CHANGES}

    def __enter__(self) -> None:
        for name in _CHANGES:
            setattr(os, name, self._wrap(name))

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _wrap(self, name: str) -> Callable[..., object]:
        def changing(*arguments: object, **options: object) -> object:
            self.changes += 1
            dies = self.changes == self._change
            if dies and not self._after:
                os._exit(DIED)
            found = self._real[name](*arguments, **options)
            if dies:
                os._exit(DIED)
            return found

        return changing
