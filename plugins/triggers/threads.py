"""Calls that block, made by triggers without holding up the others."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LOOK_SECONDS = 300.0
"""A look that takes longer has failed: the slowest of a service and a store that answer is shorter,
with all that is tried again. A hung mount of the store never answers."""

LAST_LOOK_SECONDS = 30.0
"""So long a look may take at least, however near the trigger's deadline is; the deferral itself
times out later."""

KILL_SECONDS = 20.0
"""Airflow gives on_kill 30 s."""

_Result = TypeVar("_Result")


class PatientThreads:
    """Threads for calls that may never return: one that does not is left behind.

    When half of the threads may be lost so, others take their place, so that calls that hang never
    keep all others waiting. Of one event loop: a triggerer has one.

    :param size: so many calls at a time.
    :param name: of the threads.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._renew()

    def _renew(self) -> None:
        self._pool = ThreadPoolExecutor(self._size, thread_name_prefix=self._name)
        self._left_behind = 0

    async def look(self, deadline: float, call: Callable[[], _Result]) -> _Result:
        """Run a trigger's look, which is given up some time after the deadline.

        :param deadline: of the trigger, in epoch seconds.
        :raises TimeoutError: it did not return in time. Its thread may still be at it.
        """
        left = max(LAST_LOOK_SECONDS, deadline - time.time())
        return await self._within(min(LOOK_SECONDS, left), call)

    async def kill(self, call: Callable[[], _Result]) -> _Result:
        """Run what a trigger does when a person ends its task.

        :raises TimeoutError: it did not return in time. Its thread may still be at it.
        """
        return await self._within(KILL_SECONDS, call)

    async def _within(self, seconds: float, call: Callable[[], _Result]) -> _Result:
        # With the context by which Airflow finds the task's log.
        pool, context = self._pool, contextvars.copy_context()
        work = asyncio.get_running_loop().run_in_executor(pool, context.run, call)
        try:
            # Not by wait_for, which answers a cancellation with the result if that has just come:
            # the trigger would go on, and Airflow would not call on_kill.
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            if pool is self._pool:
                self._left_behind += 1
                if 2 * self._left_behind >= self._size:
                    pool.shutdown(wait=False)
                    self._renew()
            raise
