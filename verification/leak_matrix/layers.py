"""The layers that delete TPUs, and how to identify them by the user agent of an API call."""

from __future__ import annotations

import re
from enum import StrEnum


class Layer(StrEnum):
    """The layer that deletes a TPU."""

    QUEUE = "queue"
    """The service itself: the queueing policy ends a request that waits too long."""
    VM = "vm"
    """The TPU VM's own switch."""
    TASK = "task"
    """The create or run task that is using the TPU."""
    ON_KILL = "on-kill"
    """The task or its trigger, when a person ends the task."""
    TEARDOWN = "teardown"
    """The delete task."""
    REAPER = "reaper"
    """The reaper DAG."""
    CRON = "cron"
    """The reaper as a command, outside Airflow."""
    NOBODY = "nobody"
    """There was nothing to delete."""


REMOVABLE = (Layer.QUEUE, Layer.VM, Layer.ON_KILL, Layer.TEARDOWN, Layer.REAPER, Layer.CRON)
"""Layers that can be turned off for a run of the matrix."""

_USER_AGENT = re.compile(r"bert-repretraining/([a-z-]+)")


def layer_of(caller: str) -> Layer | None:
    """Return the layer that a caller's user agent names, or None if it names none."""
    found = _USER_AGENT.search(caller)
    return Layer(found[1]) if found and found[1] in set(Layer) else None


def user_agent(layer: Layer) -> str:
    """Return the text that the user agent of a layer's calls contains."""
    return f"bert-repretraining/{layer}"
