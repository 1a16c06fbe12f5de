"""What has to happen before any test module is imported."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# So that a failed assertion in the tests' own helpers shows its values, too.
helpers = [path for path in Path(__file__).parent.iterdir() if path.is_dir()]
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in helpers))

# Airflow reads these when it is first imported. Importing it here, rather than in the middle of
# the collection, keeps its log handlers off a stream that pytest closes after each module.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "false")

import airflow.sdk  # noqa: E402, F401


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Share the tests out to the processes of ``make test``: by file, on the stack all to one.

    They share one stack and wait most of the time, so they go first, and the other processes
    compute meanwhile.
    """
    items.sort(key=lambda item: item.get_closest_marker("stack") is None)
    for item in items:
        folder, file = item.path.parent.name, str(item.path)
        item.add_marker(pytest.mark.xdist_group("stack" if folder == "stack" else file))
