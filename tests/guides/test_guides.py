"""The commands of the guides: each runs here, or says that it needs a cloud."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from local.stack.paths import REPOSITORY

LAPTOP = REPOSITORY / "docs" / "start" / "where-to-run.md"
GUIDES = [
    LAPTOP,
    *(REPOSITORY / "docs" / "guides" / name for name in ("deployment.md", "containers.md")),
]
FENCE = re.compile(r"^ *```(bash.*)\n((?:.*\n)*?) *```$", re.MULTILINE)


def commands(guide: Path, kind: str) -> list[list[str]]:
    """Return the command lines of a guide's blocks of one kind, without their comments."""
    blocks = [lines for found, lines in FENCE.findall(guide.read_text()) if found == kind]
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def here(guide: Path) -> list[list[str]]:
    return commands(guide, "bash")


def run(words: list[str], folder: Path) -> None:
    # As in a shell of a user's own, without what the tests' Airflow is told.
    environment = {name: value for name, value in os.environ.items() if "AIRFLOW" not in name}
    result = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{shlex.join(words)}: {result.stdout[-2000:]}{result.stderr}"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_each_block_runs_here_or_needs_a_cloud(guide: Path) -> None:
    kinds = {found for found, _ in FENCE.findall(guide.read_text())}
    assert kinds
    assert kinds <= {"bash", "bash cloud"}


def test_commands_that_run_here_are_targets_of_make() -> None:
    # Those take minutes and have tests of their own; what make does not know is found here.
    found = [words for guide in GUIDES for words in here(guide)]
    assert found
    for words in found:
        assert words[0] == "make", shlex.join(words)
        run([words[0], "--dry-run", *words[1:]], REPOSITORY)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_laptop_guide_runs_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], tmp_path)
    for words in here(LAPTOP):
        run(words, clone)
