"""A pytest plugin that runs tests in the order in which the command line names them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, Any, Any]:
    """Sort the tests after all other plugins have."""
    result = yield
    places = {name: place for place, name in enumerate(config.args)}
    items.sort(key=lambda item: places[item.nodeid])
    return result
