"""Runs programs in the environment of PyTorch, which has nothing of this project's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH_PYTHON = ROOT / ".venv-torch/bin/python"

RunTorch = Callable[..., str]


@pytest.fixture(scope="session")
def run_torch() -> RunTorch:
    """Return a function that runs a program with arguments and returns what it prints.

    The program is the path of a file; PyTorch, transformers, safetensors and numpy are there, and
    the repository's root is the import path.
    """
    if not TORCH_PYTHON.exists():
        pytest.skip("no PyTorch; make it: make parity")

    def run(program: Path, *arguments: str | Path) -> str:
        done = subprocess.run(
            [str(TORCH_PYTHON), str(program), *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            check=True,
        )
        return done.stdout.decode()

    return run
