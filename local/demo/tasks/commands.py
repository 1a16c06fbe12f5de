"""Runs the trainer's commands where a person watches."""

from __future__ import annotations

import subprocess
import sys


def run_watched(module: str, *arguments: str) -> None:
    """Run ``python -m module``; all that it says goes to stderr.

    :raises subprocess.CalledProcessError: it fails.
    """
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=sys.stderr)
