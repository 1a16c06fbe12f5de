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

# Airflow reads these when it is first imported. Importing it here, rather than in the middle of
# the collection, keeps its log handlers off a stream that pytest closes after each module.
if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "false")

import airflow.sdk  # noqa: E402, F401

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
