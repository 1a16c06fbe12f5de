"""Runs Google's calculator of what trainings' time was spent on, in the calculator's environment.

It has its own environment, ``requirements-goodput.txt``, because its protobuf version differs from
ours. Reads lists of log entries as JSON and prints seconds by name, in the same order. Imports
nothing of the project.

Source: https://github.com/AI-Hypercomputer/ml-goodput-measurement, ``goodput.py``; its tests pass
their own logger in the same way.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from typing import Any


class Log:
    """In-memory log entries that replace Google's Cloud Logging in the library."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._entries = entries

    def read_cloud_logging_entries(self, *_: object, **__: object) -> tuple[Any, Any]:
        """Return all entries, and the marker of the last one."""
        return self._entries, (datetime.now(UTC), "last")


def calculate(entries: list[dict[str, Any]]) -> dict[str, float]:
    """Return seconds by the library's names, in lowercase; ``step`` is the productive time."""
    from ml_goodput_measurement.src.goodput import GoodputCalculator

    with tempfile.TemporaryDirectory() as cache:
        calculator = GoodputCalculator("job", "log", cloud_logger=Log(entries), cache_dir=cache)
        calculator.get_job_goodput(include_badput_breakdown=True)
        details = calculator.get_job_goodput_details()
    productive = sum(details["goodput_time"].values())
    lost = {
        kind.name.lower(): seconds
        for kind, seconds in details["badput_time"].items()
        if isinstance(seconds, float)
    }
    return {"step": productive} | lost


if __name__ == "__main__":
    print(json.dumps([calculate(entries) for entries in json.load(sys.stdin)]))
