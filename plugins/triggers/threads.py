"""Runs the blocking calls of triggers in threads, without holding up other triggers."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LOOK_SECONDS = 300.0
"""Timeout of a poll. The slowest poll of a service and a store that do answer takes less, including
all retries; a hung mount of the store never answers."""

LAST_LOOK_SECONDS = 30.0
"""Least timeout of a poll, however close the trigger's deadline is; the deferral itself times out
later."""

KILL_SECONDS = 20.0
"""Airflow gives on_kill 30 s."""

_Result = TypeVar("_Result")


class PatientThreads:
    """A thread pool for calls that may never return: a hung call's thread is abandoned.

    Once half of the threads may be lost this way, a new pool replaces the old one, so that hung
    calls never block all others. For use from one event loop; a triggerer has one.

    :param size: most calls at a time.
    :param name: name prefix of the threads.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._renew()

    def _renew(self) -> None:
        self._pool = ThreadPoolExecutor(self._size, thread_name_prefix=self._name)
        self._left_behind = 0

    async def look(self, deadline: float, call: Callable[[], _Result]) -> _Result:
        """Run a trigger's poll, which is abandoned some time after the deadline.

        :param deadline: the trigger's deadline, in epoch seconds.
        :raises TimeoutError: it did not return in time. Its thread may still be running.
        """
        left = max(LAST_LOOK_SECONDS, deadline - time.time())
        return await self._within(min(LOOK_SECONDS, left), call)

    async def kill(self, call: Callable[[], _Result]) -> _Result:
        """Run a trigger's cleanup after a person has ended its task.

        :raises TimeoutError: it did not return in time. Its thread may still be running.
        """
        return await self._within(KILL_SECONDS, call)

    async def _within(self, seconds: float, call: Callable[[], _Result]) -> _Result:
        # In the context that leads Airflow to the task's log.
        pool, context = self._pool, contextvars.copy_context()
        work = asyncio.get_running_loop().run_in_executor(pool, context.run, call)
        try:
            # Not wait_for, which swallows a cancellation if the result has just arrived: the
            # trigger would go on, and Airflow would not call on_kill.
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            if pool is self._pool:
                self._left_behind += 1
                if 2 * self._left_behind >= self._size:
                    pool.shutdown(wait=False)
                    self._renew()
            raise
