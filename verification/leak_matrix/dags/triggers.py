"""Triggers that ignore that a person ended their task: the layer ``on-kill`` turned off."""

from __future__ import annotations

from typing import Any

from airflow.triggers.base import BaseTrigger

from triggers.tpu import TpuJobTrigger, TpuReadyTrigger


class DeafReadyTrigger(TpuReadyTrigger):
    """Waits for READY and is deaf."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return this class instead of the one it stands for."""
        return f"{__name__}.{type(self).__name__}", super().serialize()[1]

    async def on_kill(self) -> None:
        """Do nothing."""


class DeafJobTrigger(TpuJobTrigger):
    """Waits for a job and is deaf."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return this class instead of the one it stands for."""
        return f"{__name__}.{type(self).__name__}", super().serialize()[1]

    async def on_kill(self) -> None:
        """Do nothing."""


def deafened(trigger: BaseTrigger) -> BaseTrigger:
    """Return a deaf copy of a trigger."""
    kinds = {TpuReadyTrigger: DeafReadyTrigger, TpuJobTrigger: DeafJobTrigger}
    return kinds[type(trigger)](**trigger.serialize()[1])
