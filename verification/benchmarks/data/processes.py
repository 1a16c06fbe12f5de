"""Runs a command in a fresh process and measures it: wall clock, CPU time, peak memory."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_SAMPLE_SECONDS = 0.2
# A short process would end before a later first sample.
_FIRST_SAMPLE_SECONDS = 0.01
_LOG_LINES = 15
_REPOSITORY = Path(__file__).parents[3]
_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore",
}


class CommandFailedError(RuntimeError):
    """An error: a measured command failed; the message has the end of its log."""


@dataclass(frozen=True)
class Usage:
    """Resource usage of a process and its children, and the JSON object it printed last, if any.

    ``peak_rss_mb`` of several processes is the largest sum seen; memory they share counts in each.
    ``rounds_s``: the times of all rounds, of which this one is the median.
    """

    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    result: dict[str, Any]
    rounds_s: tuple[float, ...] = ()

    @property
    def best_s(self) -> float:
        """The time of the fastest round."""
        return min(self.rounds_s, default=self.wall_s)


def run_module(module: str, *arguments: str | Path) -> Usage:
    """Run ``python -m module`` with this Python, in the root of the repository.

    Paths must be absolute.

    :raises CommandFailedError: its exit status is not 0.
    """
    return run([sys.executable, "-m", module, *map(str, arguments)])


def run(argv: Sequence[str]) -> Usage:
    """Run a command; see :func:`run_module`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            env=os.environ | _ENVIRONMENT,
            cwd=_REPOSITORY,
        )
        try:
            peak, status, used = _watch(process.pid)
        except BaseException:
            process.kill()
            raise
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        log.seek(0)
        lines = output.read().decode(errors="replace").strip().split("\n")
        if process.returncode:
            tail = "\n".join(log.read().decode(errors="replace").split("\n")[-_LOG_LINES:])
            raise CommandFailedError(f"{' '.join(argv[:4])} …: exit {process.returncode}\n{tail}")
    result = json.loads(lines[-1]) if lines[-1].startswith("{") else {}
    return Usage(wall, used, peak / 1e6, result)


def _watch(pid: int) -> tuple[int, int, float]:
    """Wait until a process ends; return peak memory in bytes, wait status and CPU seconds."""
    peak = 0
    handle = os.pidfd_open(pid)
    end = select.poll()  # select() would refuse a descriptor above 1,023
    end.register(handle, select.POLLIN)
    try:
        ended = False
        pause = _FIRST_SAMPLE_SECONDS
        while not ended:
            peak = max(peak, _high_water_mark(pid), _tree_memory(pid))
            ended = bool(end.poll(pause * 1000))
            pause = min(pause * 1.1, _SAMPLE_SECONDS)
    finally:
        os.close(handle)
    _, status, used = os.wait4(pid, 0)
    return peak, status, used.ru_utime + used.ru_stime


def _high_water_mark(pid: int) -> int:
    """Return the kernel's record of the peak, so that no peak between two samples is missed."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().split("\n")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _tree_memory(pid: int) -> int:
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for member in members:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
