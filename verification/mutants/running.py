"""Tries a mutant: changes a copy of the code, and runs tests that reach it until one fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel

from verification.mutants.drawing import Mutant
from verification.mutants.tracing import Reach

TIERS = {"make test": False, "make test-all": True}
"""By tier, whether the tests that it adds are marked ``thorough``."""

BUDGET = 90.0
"""Maximum seconds of tests, as measured when traced, for a mutant in a tier."""

_ONE_TEST = 180
_SLOWER = 1800.0
_FAILED, _NOT_COLLECTED = 1, 2


class Outcome(StrEnum):
    """The outcome of a mutant in the tests of a tier."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNTESTED = "untested"


class Tried(BaseModel):
    """A mutant's outcome in a tier, the number of tests, and the test that killed it."""

    outcome: Outcome
    reaching: int
    chosen: int
    by: str | None = None
    seconds: float = 0.0


def copy_tree(tree: Path, folder: Path) -> Path:
    """Copy the files of a tree that git tracks, and return the copy."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - the user's git
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, target)
    return folder


def try_mutant(mutant: Mutant, tree: Path, copy: Path, reach: Reach) -> dict[str, Tried]:
    """Run the tests that reach a mutant, tier by tier, until one fails.

    The fastest tests that fit into :data:`BUDGET` are run. The copy is restored afterwards.

    :param tree: the traced tree.
    :raises LookupError: the mutant's location is not in the tree.
    """
    reaching = reach.tests(tree / mutant.path, mutant.find(tree).line)
    found: dict[str, Tried] = {}
    for tier, thorough in TIERS.items():
        chosen = reach.fastest(reaching, thorough=thorough, budget=BUDGET)
        found[tier] = _tried(mutant, copy, chosen)
        found[tier].reaching = len(reach.fastest(reaching, thorough=thorough, budget=float("inf")))
        if found[tier].outcome is Outcome.KILLED:
            break
    return found


def _tried(mutant: Mutant, copy: Path, tests: list[str]) -> Tried:
    """Run tests with a mutant, excluding tests that also fail without it after the same others."""
    while True:
        with _applied(mutant, copy):
            tried = run_tests(copy, tests)
        if tried.outcome is not Outcome.KILLED:
            return tried
        number = tests.index(tried.by) if tried.by in tests else len(tests) - 1
        without = run_tests(copy, tests[: number + 1])
        if without.outcome is not Outcome.KILLED:
            return tried
        if without.by not in tests:
            raise RuntimeError(
                f"The tests fail in {copy} as it is: {without.by}. Trace them again."
            )
        tests = [name for name in tests if name != without.by]


@contextmanager
def _applied(mutant: Mutant, copy: Path) -> Iterator[None]:
    path = copy / mutant.path
    original, times = path.read_text(), path.stat()
    path.write_text(mutant.find(copy).apply(original))
    try:
        yield
    finally:
        path.write_text(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(copy: Path, names: Iterable[str]) -> Tried:
    """Run tests in order until the first failure; a hang counts as a failure.

    :raises RuntimeError: pytest did not find the tests.
    """
    tests = list(names)
    if not tests:
        return Tried(outcome=Outcome.UNTESTED, reaching=0, chosen=0)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-p", "verification.mutants.named_order", f"--timeout={_ONE_TEST}"]
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=copy,
            env={**os.environ, "PYTEST_ADDOPTS": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SLOWER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Tried(outcome=Outcome.KILLED, reaching=0, chosen=len(tests), by="no end")
    unread = "while loading conftest" in done.stderr
    if done.returncode not in (0, _FAILED, _NOT_COLLECTED) and not unread:
        raise RuntimeError(
            f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}\n"
            "Trace the tests again, and look whether they pass in the copy as it is."
        )
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*)$", done.stdout, re.MULTILINE)
    line = failed.group(1) if failed else None
    return Tried(
        outcome=Outcome.KILLED if done.returncode else Outcome.SURVIVED,
        reaching=0,
        chosen=len(tests),
        # The line may end with the reason.
        by=max((name for name in tests if line and line.startswith(name)), key=len, default=line),
        seconds=round(time.monotonic() - begin, 1),
    )
