"""A plugin of pytest: which lines each test file reaches, in this process.

Used as ``pytest -p verification.mutants.coverage_plugin``, within ``coverage run``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from coverage import Coverage


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Count what a test reaches, its fixtures included, for its file."""
    coverage = Coverage.current()
    if coverage is not None:
        coverage.switch_context(item.nodeid.partition("::")[0])
    return (yield)
