"""Runs the project's own commands as a user would, for the demo and for benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from local.stack.paths import REPOSITORY


def import_path(code: Path = REPOSITORY) -> str:
    """Return the PYTHONPATH of the project's code, from the import roots in ``pyproject.toml``.

    Airflow adds ``plugins`` by itself; this is for programs outside of it.

    :param code: the folder with the code: this repository, or a copy of it.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    roots: list[str] = project["tool"]["pytest"]["ini_options"]["pythonpath"]
    return os.pathsep.join(str(code / root) for root in roots)


def run_module(module: str, *arguments: str) -> str:
    """Run ``python -m module`` and return the last line that it prints.

    :raises subprocess.CalledProcessError: it fails; its messages are on stderr.
    """
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    lines = result.stdout.decode().strip().splitlines()
    return lines[-1] if lines else ""


def run_watched(module: str, *arguments: str) -> None:
    """Run ``python -m module`` with all of its output on stderr, for a person to watch.

    :raises subprocess.CalledProcessError: it fails.
    """
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=sys.stderr)
