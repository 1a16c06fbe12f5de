"""How the tests are shared out to processes: by file, those that took longest first.

``tests/durations.json`` has the seconds of each file, of the tests of ``make test`` and of the
others. To measure them again, run all tests on a quiet machine::

    make install && .venv/bin/pytest -n 2 --no-loadscope-reorder --store-durations

A run of some tests replaces only the numbers of the files that it has run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from xdist.scheduler import LoadFileScheduling

# Files of this folder share one stack, so one process runs them all.
SHARED_STACK = "tests/stack/"
DURATIONS = Path(__file__).with_name("durations.json")
TEST, ALL = "make test", "make test-all"
# What `make test` leaves out.
LEFT_OUT = {"browser", "observe", "parity", "slow", "thorough", "tpu_compiler"}

Seconds = dict[str, dict[str, float]]
"""By tier, then by file."""


class Part(NamedTuple):
    """The tests of a file that one tier adds."""

    tier: str
    file: str


def part_of(nodeid: str, keywords: Iterable[str]) -> Part:
    """Return what a test is a part of.

    :param keywords: names of its markers, and any others.
    """
    tier = TEST if LEFT_OUT.isdisjoint(keywords) else ALL
    return Part(tier, nodeid.partition("::")[0])


def load(path: Path = DURATIONS) -> Seconds:
    """Return the stored seconds."""
    found: Seconds = json.loads(path.read_text()) if path.exists() else {}
    return {tier: found.get(tier, {}) for tier in (TEST, ALL)}


def store(measured: Mapping[Part, float], root: Path, path: Path = DURATIONS) -> None:
    """Replace the seconds of what was measured, and drop files that are gone.

    :param root: what the names of the files are relative to.
    """
    kept = load(path)
    for (tier, file), seconds in measured.items():
        kept[tier][file] = round(seconds, 1)
    for tier, files in kept.items():
        kept[tier] = {file: files[file] for file in sorted(files) if (root / file).exists()}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def expected(parts: Iterable[Part], stored: Seconds) -> dict[str, float]:
    """Return how long each file is expected to take; what was never measured is as the median."""
    known = [seconds for files in stored.values() for seconds in files.values()]
    unknown = median(known) if known else 0.0
    files: dict[str, float] = defaultdict(float)
    for tier, file in set(parts):
        files[file] += stored[tier].get(file, unknown)
    return files


def sort(items: list[pytest.Item], stored: Seconds) -> None:
    """Put the stack first, which waits for others most of the time, then the longest file."""
    seconds = expected((part_of(item.nodeid, item.keywords) for item in items), stored)

    def key(item: pytest.Item) -> tuple[bool, float, str]:
        if item.nodeid.startswith(SHARED_STACK):
            # All alike: they tell a story, which keeps its order.
            return False, 0.0, ""
        # The name decides between equals, so that a file's tests stay together.
        file = item.nodeid.partition("::")[0]
        return True, -seconds[file], file

    items.sort(key=key)


def leave_out_late(keywords: Iterable[str], minutes: float, within: float) -> None:
    """Skip a test that is thorough if the run is older than it may be when one begins.

    For machines that end a run after a time of their own: what was not tried is then named by us,
    instead of the whole run being lost.

    :param minutes: age of the run.
    :param within: so old it may be, in minutes.
    """
    if minutes > within and "thorough" in keywords:
        pytest.skip(f"not begun, as {within:g} minutes had passed: run `make test-all`")


class ByFile(LoadFileScheduling):
    """Shares the tests out to the processes of ``make test``: by file, or those on the stack."""

    def _split_scope(self, nodeid: str) -> str:
        return SHARED_STACK if nodeid.startswith(SHARED_STACK) else super()._split_scope(nodeid)


def measured(reports: Iterable[Any]) -> dict[Part, list[float]]:
    """Return the seconds of each test of each part; setup and teardown count."""
    tests: dict[tuple[Part, str], float] = defaultdict(float)
    for report in reports:
        tests[part_of(report.nodeid, report.keywords), report.nodeid] += report.duration
    found: dict[Part, list[float]] = defaultdict(list)
    for (part, _), seconds in tests.items():
        found[part].append(seconds)
    return found


def table(found: Mapping[Part, list[float]]) -> list[str]:
    """Return the lines of a table by folder: seconds and number of tests, longest first."""
    folders: dict[str, list[float]] = defaultdict(list)
    for part, seconds in found.items():
        folders["/".join(part.file.split("/")[:-1])] += seconds
    rows = sorted(folders.items(), key=lambda row: -sum(row[1]))
    return [f"{sum(seconds):8.1f} s {len(seconds):6} tests  {folder}" for folder, seconds in rows]
