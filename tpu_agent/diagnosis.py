"""Turns the end of a job into the message a person reads."""

from __future__ import annotations

import signal

from pipeline_store.formats import ExitKind
from tpu_agent.hbm import HbmShortage

FULL_DISK_BYTES = 64 * 1024 * 1024
TAIL_LINES = 30
_FULL_DISK_TEXT = "No space left on device"


def describe_end(code: int) -> str:
    """Return ``exit code 1`` or ``SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def explain(
    kind: ExitKind,
    *,
    job: str,
    worker: int,
    code: int,
    tail: str,
    disk_free_bytes: int,
    shortage: HbmShortage | None = None,
    hang: str = "",
) -> str:
    """Return the message of a status: what happened, what to do, the last log lines.

    :param code: exit code, or minus the signal that ended the process.
    :param tail: last lines of the log.
    :param disk_free_bytes: room on the disk of the work folder.
    :param shortage: what the log said of the chips' memory, if anything.
    :param hang: where it hung, if it did.
    """
    if kind in (ExitKind.OK, ExitKind.PREEMPTED):
        return ""
    lines = [f"{job} on worker {worker} ended with {describe_end(code)} ({kind})."]
    if code == -signal.SIGKILL and kind is ExitKind.OUT_OF_MEMORY:
        lines.append(
            "The kernel killed it because the TPU VM's memory was full: lower "
            "training.global_batch_size or choose an accelerator type whose host has more memory."
        )
    if hang:
        lines.append(f"It was ended by the agent: {hang}")
    if shortage is not None:
        lines.append(shortage.advice)
    if disk_free_bytes < FULL_DISK_BYTES or _FULL_DISK_TEXT in tail:
        lines.append(
            f"The TPU VM's disk is full ({disk_free_bytes >> 20} MiB free): keep fewer checkpoints "
            "(training.max_to_keep) or choose an accelerator type with a larger disk."
        )
    return "\n".join([*lines, "Last lines of its log:", tail])
