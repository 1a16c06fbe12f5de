"""Calls that block, made by triggers without holding up the others."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(threads: Executor, call: Callable[[], _Result]) -> _Result:
    """Run a call that blocks, with the context by which Airflow finds the task's log."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, context.run, call)
