"""A pytest plugin that records which lines each test reaches in this process, and its duration.

Used as ``pytest -p verification.mutants.coverage_plugin``, within ``coverage run``. Next to the
data file of coverage.py, where a context is a test or a fixture, it writes a file on the tests.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

TESTS_SUFFIX = ".tests.json"


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder if coverage.py is measuring."""
    coverage = Coverage.current()
    if coverage is not None:
        config.pluginmanager.register(_Recorder(coverage))


class _Recorder:
    """Sets coverage.py's context to the running test or fixture, and records all of them."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._context = ""
        self._tests: dict[str, dict[str, Any]] = {}
        self._fixtures: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Attribute the lines that a test reaches to the test."""
        self._enter(item.nodeid)
        self._tests[item.nodeid] = {
            "seconds": 0.0,
            "thorough": item.get_closest_marker("thorough") is not None,
            "passed": False,
            "fixtures": getattr(item, "fixturenames", []),
        }
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Attribute lines of a shared fixture to the fixture: all its users depend on them."""
        if fixturedef.scope == "function":
            return (yield)
        user, begin = self._context, time.perf_counter()
        name = f"{fixturedef.baseid}::{fixturedef.argname}"
        self._enter(name)
        try:
            return (yield)
        finally:
            seconds = time.perf_counter() - begin
            self._fixtures[name] += seconds
            if user in self._tests:
                self._tests[user]["seconds"] -= seconds
            self._enter(user)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record how long a test took and whether it passed."""
        test = self._tests[report.nodeid]
        test["seconds"] += report.duration
        test["passed"] |= report.passed and report.when == "call"
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the tests, marking those that passed: nothing can be learned from the others."""
        for name, test in self._tests.items():
            test["passed"] &= name not in self._failed
            test["fixtures"] = self._shared_by(name, test["fixtures"])
        path = Path(self._coverage.get_data().data_filename() + TESTS_SUFFIX)
        path.write_text(json.dumps({"tests": self._tests, "fixtures": self._fixtures}, indent=1))

    def _enter(self, context: str) -> None:
        self._context = context
        self._coverage.switch_context(context)

    def _shared_by(self, test: str, fixtures: list[str]) -> list[str]:
        """Return the shared fixtures among those that a test uses."""
        places = [
            (place, name)
            for place, name in (shared.rsplit("::", 1) for shared in self._fixtures)
            if name in fixtures and test.startswith(place)
        ]
        return sorted(f"{place}::{name}" for place, name in places)
