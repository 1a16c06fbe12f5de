"""Places for a store, and an installation in a played cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import airflow.sdk  # noqa: F401 - before a test imports an operator; see tests/conftest.py
import pytest

from tests.pipeline_store.stores import any_store, cloud_storage
from tests.preflight.cloud_world import CloudWorld, cloud_world, new_private_key
from tests.preflight.google_stub import PROJECT
from tpu_emulator.testing import RunningEmulator, start_emulator

__all__ = ["any_store", "cloud_storage"]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
    with start_emulator(tmp_path_factory.mktemp("cloud"), project=PROJECT) as running:
        yield running


@pytest.fixture(scope="module")
def private_key() -> str:
    return new_private_key()


@pytest.fixture
def world(
    emulator: RunningEmulator,
    private_key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CloudWorld]:
    with cloud_world(emulator, private_key, tmp_path, monkeypatch) as world:
        yield world
