"""Attacks on Airflow's addresses and on our pages, in an API server without anything else.

The control lets everybody be the administrator and writes into pages whatever an address says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from local.commands import import_path
from local.stack.paths import REPOSITORY
from verification.attack_check.rows import Row, Tally
from verification.attack_check.web_program import UNMENDED


class _Server:
    """An API server's application, in a process of its own.

    All rows are asked at once: it takes longer to start than to answer.
    """

    def __init__(self) -> None:
        self.is_mended = True
        self._known: dict[bool, dict[str, dict[str, Any]]] = {}

    def tally(self, name: str, home: Path) -> Tally:
        """Return what became of an attack."""
        if self.is_mended not in self._known:
            self._known[self.is_mended] = self._ask(home)
        return Tally(**self._known[self.is_mended][name])

    def _ask(self, home: Path) -> dict[str, dict[str, Any]]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": str(not self.is_mended),
            "REPRETRAIN_STORE_URI": str(home / "store"),
            "REPRETRAIN_PRESET": "smoke",
            "PYTHONPATH": import_path(),
        }
        command = [sys.executable, "-m", "verification.attack_check.web_program"]
        ended = subprocess.run(
            [*command, *([] if self.is_mended else [UNMENDED])],
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"The application cannot be asked: {ended.stderr[-2000:]}")
        found: dict[str, dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
        return found


_SERVER = _Server()


def _asked(name: str) -> Callable[[Path, int], Tally]:
    """Return an attack: all tries of a name, however many are wanted."""
    return lambda folder, _: _SERVER.tally(name, folder)


ROWS = tuple(
    Row(name, _asked(name), times, lambda: mock.patch.object(_SERVER, "is_mended", new=False))
    for name, times in (
        ("requests without a login", 128),
        ("changes as a viewer", 60),
        ("pages, roles and forged tokens", 420),
        ("parameters of pages", 140),
    )
)
