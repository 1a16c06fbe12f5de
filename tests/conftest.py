"""What has to happen before any test module is imported."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# So that a failed assertion in the tests' own helpers shows its values, too.
helpers = [path for path in Path(__file__).parent.iterdir() if path.is_dir()]
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in helpers))

# Airflow reads these when it is first imported, which is left to the folders whose tests need it.
# There it happens in conftest.py, as pytest captures nothing while it reads that: log handlers that
# are made while a test module is imported, or a test runs, would keep a stream of pytest's.
if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "false")

# Files of this folder share one stack, so one process runs them all.
SHARED_STACK = "tests/stack/"


class ByFile(LoadFileScheduling):
    """Shares the tests out to the processes of ``make test``: by file, or those on the stack."""

    def _split_scope(self, nodeid: str) -> str:
        return SHARED_STACK if nodeid.startswith(SHARED_STACK) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Share out by :class:`ByFile`."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what waits for others most of the time: processes that compute go on beside it."""
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    if item.nodeid.startswith(SHARED_STACK):
        return 0
    return 1 if item.get_closest_marker("stack") else 2
