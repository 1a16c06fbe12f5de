"""The command for cron, called as cron does: with nothing but what is named in its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_store.layout import StoreLayout

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Called:
    """What came of the command."""

    code: int
    report: dict[str, Any]
    said: str

    @property
    def causes(self) -> list[str]:
        return [one["cause"] for one in self.report["findings"]]


def call(store: StoreLayout, home: Path, **variables: str) -> Called:
    """Run the command outside of any Airflow: a home of its own, and a database that is not there.

    :param home: where the Airflow that it imports keeps its configuration.
    :param variables: further settings.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://nobody@127.0.0.1:1/none",
        "AIRFLOW__API__BASE_URL": "http://airflow.example.com",
        "NO_PROXY": "127.0.0.1",
        "REPRETRAIN_STORE_URI": store.root,
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-m", "pipeline_alerts", "watch-status", "--deliver"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return Called(done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr)
