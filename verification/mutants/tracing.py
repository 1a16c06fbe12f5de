"""Traces which tests reach a line, and what each costs, by running the tests of a group."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from coverage import CoverageData
from pydantic import BaseModel

from verification.mutants.coverage_plugin import TESTS_SUFFIX

GROUPS: Mapping[str, tuple[str, ...]] = {
    "lifecycle": ("tpu_lifecycle", "tpu_agent"),
    "data": ("beam_jobs", "corpus"),
    "trainer": ("training", "trained_models"),
    "gate": ("model_registry",),
}
"""Top-level packages, grouped by what they put at risk: money, records, weights, model in use."""

UNASKED = "not browser and not slow and not tpu_compiler and not parity and not observe"
"""Expression that selects pytest's default tests, without those that need special setups."""


class Test(BaseModel):
    """A test; its ``seconds`` exclude those of ``fixtures``, which it may share with others."""

    seconds: float
    thorough: bool
    passed: bool
    fixtures: list[str]


class Tests(BaseModel):
    """The record of a run: tests by name, and the seconds of shared fixtures."""

    tests: dict[str, Test]
    fixtures: dict[str, float]


def trace(tree: Path, group: str, data: Path, more: Iterable[str] = ()) -> int:
    """Run the tests of a group in one process, write a data file, return pytest's exit code.

    Lines that a test reaches in child processes are not recorded.

    :param more: further arguments of pytest.
    """
    rooms = GROUPS[group]
    pytest = ["-m", "pytest", "-p", "verification.mutants.coverage_plugin", "-n", "0", "-q"]
    folders = [f"tests/{room}" for room in rooms]
    command = [sys.executable, "-m", "coverage", "run", f"--source={','.join(rooms)}"]
    data.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [*command, f"--data-file={data.resolve()}", *pytest, "-m", UNASKED, *folders, *more],
        cwd=tree,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode


class Reach:
    """The lines that tests reach in a tree, from the runs of :func:`trace`."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._runs = [_Run(file) for file in files]

    def tests(self, path: Path, line: int) -> set[str]:
        """Return the tests that reach a line of a file, directly or through a fixture."""
        return set().union(*(run.tests(path.resolve(), line) for run in self._runs))

    def fastest(self, names: Iterable[str], *, thorough: bool, budget: float) -> list[str]:
        """Return the fastest tests of a tier that fit into a budget, at least one, file by file.

        :param budget: seconds, as measured by the runs.
        """
        known = {name: test for run in self._runs for name, test in run.known.tests.items()}
        costs = {name: cost for run in self._runs for name, cost in run.known.fixtures.items()}
        ready: set[str] = set()
        spent: dict[str, float] = defaultdict(float)
        chosen: list[str] = []

        def cost(name: str) -> float:
            fixtures = set(known[name].fixtures) - ready
            return known[name].seconds + sum(costs[fixture] for fixture in fixtures)

        candidates = [name for name in names if known[name].thorough == thorough]
        for name in sorted(candidates, key=lambda name: (cost(name), name)):
            if chosen and sum(spent.values()) + cost(name) > budget:
                continue
            spent[_file(name)] += cost(name)
            ready |= set(known[name].fixtures)
            chosen.append(name)
        # A file's tests stay together and in order: they share fixtures and their state.
        places = {name: place for place, name in enumerate(known)}
        return sorted(chosen, key=lambda name: (spent[_file(name)], _file(name), places[name]))


class _Run:
    def __init__(self, file: Path) -> None:
        self._data = CoverageData(str(file))
        self._data.read()
        text = Path(f"{file}{TESTS_SUFFIX}").read_text()
        self.known = Tests.model_validate(json.loads(text))
        self._users: dict[str, set[str]] = defaultdict(set)
        for name, test in self.known.tests.items():
            if test.passed:
                for context in (name, *test.fixtures):
                    self._users[context].add(name)
        self._files: dict[Path, dict[int, list[str]]] = {}

    def tests(self, path: Path, line: int) -> set[str]:
        if path not in self._files:
            self._files[path] = self._data.contexts_by_lineno(str(path))
        contexts = self._files[path].get(line, [])
        return set().union(*(self._users.get(context, ()) for context in contexts))


def _file(test: str) -> str:
    return test.partition("::")[0]
