"""Explains to people why a job ended, such as for lack of host or chip memory."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from pipeline_store.formats import ExitKind


def kill_count(
    proc: Path = Path("/proc"),
    cgroups: Path = Path("/sys/fs/cgroup"),
) -> int:
    """Return how many processes the kernel has killed for lack of memory so far.

    Counts the agent's own cgroup, in which its jobs run too; if the kernel does not count by
    cgroup, the whole machine. A job that was killed while this number grew ran out of memory.
    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events, oom_kill)
    """
    for path in [*_cgroup_counters(proc, cgroups), proc / "vmstat"]:
        count = _read(path)
        if count is not None:
            return count
    return 0


def _cgroup_counters(proc: Path, cgroups: Path) -> list[Path]:
    counters = []
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            counters.append(cgroups / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            counters.append(cgroups / "memory" / path.lstrip("/") / "memory.oom_control")
    return counters


def _read(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    pairs = (line.split() for line in lines)
    return next((int(pair[1]) for pair in pairs if pair[0] == "oom_kill"), None)


# Messages of the compiler when a program does not fit, and of the runtime when it cannot load it or
# cannot allocate. Sizes look like 17.21G or 385.25M.
_SIZE = r"([\d.]+[KMGT]?)(?:i?B)?"
_MESSAGES = [
    re.compile(text, re.IGNORECASE)
    for text in (
        rf"ran out of memory in memory space hbm(?:\. Used {_SIZE} of {_SIZE} hbm)?",
        rf"ran out of memory on HBM(?:[^\n]*?\({_SIZE}\) exceeds available HBM \({_SIZE}\))?",
        (
            rf"attempting to (?:allocate|reserve) {_SIZE}[^\n]*?That was not possible"
            rf"(?:\. There are {_SIZE} free)?"
        ),
    )
]


@dataclass(frozen=True)
class HbmShortage:
    """Memory that a program needed and that a chip had, as in the message; empty if not given."""

    needed: str = ""
    available: str = ""

    @property
    def advice(self) -> str:
        """Return what happened and what to change, in words."""
        sizes = [
            text
            for size, text in (
                (self.needed, f"{self.needed} needed"),
                (self.available, f"{self.available} available"),
            )
            if size
        ]
        return (
            f"The memory of a TPU chip (HBM) was too small{': ' if sizes else ''}"
            f"{', '.join(sizes)}. Halve training.global_batch_size, or double "
            "training.gradient_accumulation_steps: that makes the same updates in less memory."
        )


def find_shortage(log: str) -> HbmShortage | None:
    """Return the last shortage of chip memory that a log reports, or None."""
    last: re.Match[str] | None = None
    for pattern in _MESSAGES:
        for match in pattern.finditer(log):
            if last is None or match.start() > last.start():
                last = match
    if last is None:
        return None
    needed, available = last.groups()
    return HbmShortage(needed or "", available or "")


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
    :param disk_free_bytes: free space on the disk of the work folder.
    :param shortage: shortage of chip memory that the log reports, if any.
    :param hang: where the job hung, if it did.
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
