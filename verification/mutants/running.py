"""Tries a mutant: a copy of the code with it, and the tests that reach it, until one fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

from verification.mutants.drawing import Mutant

UNASKED = "not browser and not slow and not tpu_compiler and not parity"
TIERS = {"make test": f"{UNASKED} and not thorough", "make test-all": f"{UNASKED} and thorough"}
"""The tests that each tier adds, as pytest selects them."""

_NO_TESTS = 5
_SLOWER = 900.0


class Outcome(StrEnum):
    """What came of a mutant in the tests of a tier."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNTESTED = "untested"


def copy_tree(tree: Path, folder: Path) -> Path:
    """Copy what git knows of a tree, with its environment, and return the copy."""
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


def try_mutant(mutant: Mutant, copy: Path, tier: str) -> Outcome:
    """Run the tests of a tier that reach a mutant, with it, until the first that fails.

    Tests that never end have noticed it, too. The copy is as before afterwards.

    :raises LookupError: the copy has no such place.
    """
    path, mutation = mutant.find(copy)
    original = path.read_text()
    path.write_text(mutation.apply(original))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, "-m", TIERS[tier], *mutant.tests],
            cwd=copy,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SLOWER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome.KILLED
    finally:
        path.write_text(original)
    if done.returncode == _NO_TESTS:
        return Outcome.UNTESTED
    return Outcome.KILLED if done.returncode else Outcome.SURVIVED
