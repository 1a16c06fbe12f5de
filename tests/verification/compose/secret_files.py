"""Runs make_secrets.py as a person does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.verification.compose.compose_file import FOLDER


def make_secrets(folder: Path, *options: str, code: int = 0) -> str:
    """Run the command on a folder; return what it printed."""
    command = [sys.executable, "-I", str(FOLDER / "make_secrets.py"), "--folder", str(folder)]
    command += options
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr
