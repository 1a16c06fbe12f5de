"""Runs the project's own commands as a user would, for benchmarks that compare them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def run_module(module: str, *arguments: str) -> str:
    """Run ``python -m module`` and return the last line that it prints.

    :raises subprocess.CalledProcessError: it fails; its messages are on stderr.
    """
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    lines = result.stdout.decode().strip().splitlines()
    return lines[-1] if lines else ""


def print_result(**values: Any) -> None:
    """Print one result as one JSON object on a line of its own."""
    print(json.dumps(values), flush=True)
