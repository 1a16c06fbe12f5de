"""Runs a real ``airflow triggerer`` on a separate database, and measures what it uses."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).resolve().parents[3]
WARM_UP_SECONDS = 30.0
"""Time until it has loaded everything and, the second time, started every trigger."""


def measure(
    wires: Path, environment: Mapping[str, str], seconds: float, meanwhile: Callable[[], None]
) -> dict[str, Any]:
    """Start a triggerer, give it the triggers, and return the resources that it used.

    :param wires: JSON list of the triggers' arguments.
    :param environment: environment variables; AIRFLOW_HOME is an empty folder.
    :param seconds: duration of the measurement.
    :param meanwhile: called repeatedly during it.
    :raises subprocess.CalledProcessError: Airflow could not be set up.
    """
    airflow = [sys.executable, "-m", "airflow"]
    variables = dict(os.environ) | dict(environment)
    quiet: dict[str, Any] = {
        "cwd": REPOSITORY,
        "env": variables,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
    }
    subprocess.run([*airflow, "db", "migrate"], check=True, **quiet)
    triggerer = subprocess.Popen(
        [*airflow, "triggerer", "--skip-serve-logs"], start_new_session=True, **quiet
    )
    try:
        _spend(WARM_UP_SECONDS, meanwhile)
        before = _tree(triggerer.pid)
        deferred = [
            sys.executable,
            "-m",
            "verification.benchmarks.triggers.deferred_tasks",
            str(wires),
        ]
        subprocess.run(deferred, check=True, **quiet)
        _spend(WARM_UP_SECONDS, meanwhile)
        began, first = time.time(), _tree(triggerer.pid)
        _spend(seconds, meanwhile)
        last = _tree(triggerer.pid)
        spent = time.time() - began
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(triggerer.pid, signal.SIGKILL)
        triggerer.wait()
    return {
        "seconds": round(spent, 1),
        "began": began,
        "rss_mb_without_triggers": before["rss_mb"],
        "rss_mb": last["rss_mb"],
        "processes": last["processes"],
        "threads": last["threads"],
        "cpu_share": round((last["cpu"] - first["cpu"]) / spent, 3),
    }


def _spend(seconds: float, meanwhile: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        meanwhile()


def _tree(pid: int) -> dict[str, Any]:
    """Return the total memory, CPU seconds and threads of a process and its children."""
    found = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    times = [process.cpu_times() for process in found]
    return {
        "rss_mb": round(sum(process.memory_info().rss for process in found) / 2**20, 1),
        "processes": len(found),
        "threads": sum(process.num_threads() for process in found),
        "cpu": sum(spent.user + spent.system for spent in times),
    }
