from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import serving
from tests.tpu_lifecycle.booting import MetadataServer
from tests.tpu_lifecycle.world import World
from tpu_emulator.testing import RunningEmulator, start_emulator


@pytest.fixture(scope="package")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
    with start_emulator(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def world(emulator: RunningEmulator, tmp_path: Path) -> Iterator[World]:
    with World.create(emulator, tmp_path) as world:
        yield world


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with serving(MetadataServer()) as server:
        yield server
