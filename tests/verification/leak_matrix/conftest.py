"""One stack for the matrix's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verification.leak_matrix.catalogue import SCENARIOS
from verification.leak_matrix.session import Session, session


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("leak-matrix") / "stack"
    fast = [scenario for scenario in SCENARIOS if scenario.fast]
    with session(folder, None, fresh=True, scenarios=fast) as running:
        yield running
