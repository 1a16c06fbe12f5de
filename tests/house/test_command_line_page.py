"""The reference of all commands: as the parsers have it, and no command is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = (
    "beam_jobs",
    "model_registry",
    "pipeline_alerts",
    "pipeline_config",
    "pipeline_metrics",
    "preflight",
    "tpu_emulator",
    "tpu_lifecycle",
    "training",
)
NOBODY_TYPES = {
    # Commands of the command of another module, which hands its words on.
    "model_registry.import_command",
    "model_registry.prune",
    # A task of a DAG and `model_registry import` run it with what they have prepared.
    "training.import_version",
}


def modules_with_parsers() -> set[str]:
    """Return the modules of the rooms that people use that say how they are run."""
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text()
            if re.search(r"\bprog=\"python -m|[^_](command_parser|SubCommands)\(", text):
                name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
                found.add(name.removesuffix(".__main__"))
    # The one makes the parser of prepare_corpus, the other parsers of all.
    return found - {"beam_jobs.job.options", "pipeline_config.command_line"}


def test_the_list_of_commands_is_complete() -> None:
    listed = (ROOT / "docs/reference/commands.md").read_text()
    named = set(re.findall(r"`python -m ([a-z_.]+)", listed))
    assert modules_with_parsers() - NOBODY_TYPES <= named
    assert not NOBODY_TYPES & named


@pytest.mark.thorough
def test_the_page_is_what_the_parsers_say() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/list-commands", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
