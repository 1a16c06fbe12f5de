from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tpu_lifecycle.world import World
from tpu_emulator.testing import RunningEmulator, start_emulator


@pytest.fixture(scope="package")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
    with start_emulator(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def world(emulator: RunningEmulator, tmp_path: Path) -> Iterator[World]:
    """A store of its own; the shared cloud is empty before and after."""
    world = World.create(emulator, tmp_path)
    world.assert_nothing_left()
    yield world
    emulator.admin.clear_faults()
    world.assert_nothing_left()
