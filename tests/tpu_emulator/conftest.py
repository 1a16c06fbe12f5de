from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tpu_emulator.support import Tpu, connect
from tpu_emulator.testing import start_emulator, wait_for


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tpu]:
    folder = tmp_path_factory.mktemp("emulator")
    with start_emulator(folder, reservation=("team-a",)) as emulator, connect(emulator) as tpu:
        yield tpu


@pytest.fixture
def tpu(_shared: Tpu) -> Iterator[Tpu]:
    """An emulator that tests share, each with names of its own; armed faults do not stay."""
    yield _shared
    _shared.admin.clear_faults()


@pytest.fixture
def lonely(_shared: Tpu) -> Iterator[Tpu]:
    """The shared emulator in a zone that is empty before and after the test."""
    with connect(_shared.emulator, "us-west4-a") as tpu:
        yield tpu
    _shared.admin.clear_faults()
    for name in tpu.names_in_zone():
        tpu.admin.vanish(name)
    wait_for(lambda: not tpu.names_in_zone())


@pytest.fixture
def state_folder(tmp_path: Path) -> Path:
    """Where an emulator of the test's own keeps its state."""
    return tmp_path
