"""Attacks on Airflow's endpoints and on our pages, in an API server alone.

The control makes everyone an administrator, writes addresses and records into pages unescaped, lets
another site request everything, checks any number of passwords, and hides no secret.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from local.commands import import_path
from local.stack.paths import REPOSITORY
from verification.attack_check.rows import Row, Tally


class _Server:
    """An API server's application in a child process, with the safeguards and then without.

    All rows are tried in one process: it takes longer to start than to answer.
    """

    def __init__(self) -> None:
        self.is_mended = True
        self._known: dict[str, dict[str, dict[str, Any]]] = {}
        self._most = 0

    def tally(self, name: str, home: Path, most: int) -> Tally:
        """Return the tally of an attack.

        :param most: maximum number of groups of tries. The control continues until it does harm.
        """
        if self.is_mended and most > self._most:
            self._known, self._most = self._ask(home, most), most
        return Tally(**self._known["mended" if self.is_mended else "control"][name])

    def _ask(self, home: Path, most: int) -> dict[str, dict[str, dict[str, Any]]]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            # It would log each request in several lines.
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
            "REPRETRAIN_STORE_URI": str(home / "store"),
            "REPRETRAIN_PRESET": "smoke",
            "PYTHONPATH": import_path(),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "verification.attack_check.web_program", "--most", str(most)],
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"The application cannot be asked: {ended.stderr[-2000:]}")
        found: dict[str, dict[str, dict[str, Any]]] = json.loads(ended.stdout.splitlines()[-1])
        return found


_ALL = 1_000_000
_SERVER = _Server()


def _asked(name: str) -> Callable[[Path, int], Tally]:
    """Return the attack with the given name."""
    return lambda folder, times: _SERVER.tally(name, folder, times)


ROWS = tuple(
    Row(name, _asked(name), _ALL, lambda: mock.patch.object(_SERVER, "is_mended", new=False))
    for name in (
        "requests without a login",
        "changes as a viewer",
        "pages, roles and forged tokens",
        "parameters of pages",
        "reason of a rollback on pages",
        "requests of another site",
        "forms of a rollback",
        "secrets in answers",
        "wrong passwords",
    )
)
