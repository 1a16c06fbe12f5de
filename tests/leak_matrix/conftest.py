"""One stack for the matrix's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leak_matrix.session import Session, session


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with session(tmp_path_factory.mktemp("leak-matrix") / "stack", None, fresh=True) as running:
        yield running
