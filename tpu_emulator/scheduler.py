"""Runs planned transitions when they are due, one at a time per resource.

They are due by the clock of the emulated service, which may differ from that of its clients.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tpu_emulator.store import Store, Transition

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_IDLE_SECONDS = 60.0


class Scheduler:
    """One thread that waits for the next due transition and a pool that runs them.

    A transition leaves the store only after it ran: one that raised is tried again, and one
    that a kill of the emulator interrupted runs again after the restart. So each must be
    idempotent.
    """

    def __init__(self, store: Store, run: Callable[[Transition], None], threads: int = 32) -> None:
        self._store = store
        self._run = run
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="transition")
        self._changed = threading.Condition()
        self._busy: set[str] = set()
        self._stopped = False
        self._wakeups = 0
        self._thread = threading.Thread(target=self._loop, name="scheduler", daemon=True)
        store.on_schedule = self._wake

    def start(self) -> None:
        """Starts running transitions."""
        self._thread.start()

    def stop(self) -> None:
        """Starts no further transition and waits for the running ones."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()
        self._pool.shutdown()

    def _wake(self) -> None:
        with self._changed:
            self._wakeups += 1
            self._changed.notify()

    def _loop(self) -> None:
        while not self._stopped:
            seen = self._wakeups
            delay = self._dispatch()
            with self._changed:
                if not self._stopped and self._wakeups == seen:
                    self._changed.wait(delay)

    def _dispatch(self) -> float:
        """Submits the due transitions and returns the seconds until the next one."""
        now = time.time()
        for transition in self._store.transitions():
            if transition.serial in self._busy:
                continue
            if transition.due > now:
                return transition.due - now
            with self._changed:
                self._busy.add(transition.serial)
            self._pool.submit(self._run_one, transition)
        return _IDLE_SECONDS

    def _run_one(self, transition: Transition) -> None:
        try:
            self._run(transition)
            self._store.drop_transition(transition.id)
        except Exception:  # noqa: BLE001 - a plan that is lost would leave a VM running
            _log.exception("%s of %s failed, again soon", transition.action, transition.target)
            self._store.postpone_transition(transition.id, _RETRY_SECONDS)
        finally:
            with self._changed:
                self._busy.discard(transition.serial)
            self._wake()


class Clock:
    """The service's clock, for all timestamps of the API and deadlines of queueing policies."""

    def __init__(self, skew: float) -> None:
        """Takes the seconds by which the clock is fast; slow if negative."""
        self._skew = skew

    def now(self) -> float:
        """Seconds since the epoch, by the service's clock."""
        return time.time() + self._skew
