"""Asks Google's calculator what the time of trainings was spent on; runs where that is installed.

In an environment of its own, ``requirements-goodput.txt``, as its protobuf is not ours. Reads lists
of log entries as JSON and prints seconds by name, in the same order. Nothing of the project is
imported here.

Source: https://github.com/AI-Hypercomputer/ml-goodput-measurement, ``goodput.py``; that a logger of
one's own may be given is how its tests do it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from typing import Any


class Log:
    """Entries in memory, where the library has Google's Cloud Logging."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._entries = entries

    def read_cloud_logging_entries(self, *_: object, **__: object) -> tuple[Any, Any]:
        """Return all entries, and which is the last one."""
        return self._entries, (datetime.now(UTC), "last")


def calculate(entries: list[dict[str, Any]]) -> dict[str, float]:
    """Return seconds by the library's names, in small letters; ``step`` is what was productive."""
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
