"""Delays a trigger's events until the scheduler knows that the task is deferred."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator

from airflow.triggers.base import BaseTrigger, TriggerEvent

EARLIEST_SECONDS = 5.0
"""Least time from a trigger's start to its first event. The triggerer may begin before the worker
reports that the task was deferred. If the task is queued again before the scheduler reads that
report, the scheduler takes it for a report on the queued try and fails that try: a TPU's start is
paid for nothing (apache/airflow issue 72716)."""


class SettledTrigger(BaseTrigger):
    """Base of triggers whose events wait until the deferral of their task has settled."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events, none earlier than :data:`EARLIEST_SECONDS` after the start."""
        begin = time.monotonic()
        async for event in self.events():
            await asyncio.sleep(max(0.0, EARLIEST_SECONDS - (time.monotonic() - begin)))
            yield event

    @abstractmethod
    def events(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events that resume the task."""
