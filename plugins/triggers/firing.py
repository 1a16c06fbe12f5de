"""When a trigger may fire: not before the scheduler has heard that the task waits."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator

from airflow.triggers.base import BaseTrigger, TriggerEvent

EARLIEST_SECONDS = 5.0
"""A trigger that fires sooner waits for so long in all. The worker reports that a task was deferred
after the triggerer may have begun. If the task is queued again before that report is read, the
scheduler takes it for one of the try that is queued, and fails it: a TPU's start is paid for
nothing (apache/airflow issue 72716)."""


class SettledTrigger(BaseTrigger):
    """A trigger whose event waits until the deferral of its task has settled."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events, none of them too soon."""
        begin = time.monotonic()
        async for event in self.events():
            await asyncio.sleep(max(0.0, EARLIEST_SECONDS - (time.monotonic() - begin)))
            yield event

    @abstractmethod
    def events(self) -> AsyncIterator[TriggerEvent]:
        """Yield what the task is resumed with."""
