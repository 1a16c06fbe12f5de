from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline_store.stores import cloud_storage
from tests.tpu_agent.world import World

__all__ = ["cloud_storage"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def cloud_world(tmp_path: Path, cloud_storage: object) -> Iterator[World]:
    world = World(tmp_path, "gs://bucket/store")
    yield world
    world.close()
