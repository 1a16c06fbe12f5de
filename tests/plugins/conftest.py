"""Airflow in this process, without a database: operators and triggers get what they need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import airflow.sdk  # noqa: F401 - before the tests import operators; see tests/conftest.py
import pytest

from alerting import callbacks
from operators import watch
from tests.plugins.driver import Driver
from tests.tpu_lifecycle.world import World
from tpu_emulator.testing import RunningEmulator, start_emulator
from triggers import firing


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let triggers fire at once: no scheduler has to hear of anything."""
    monkeypatch.setattr(firing, "EARLIEST_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def clearing(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return what Airflow says of each run: how often it was cleared, which tasks have failed."""
    said = SimpleNamespace(times=0, failed=[])
    for module in (callbacks, watch):
        monkeypatch.setattr(module, "times_cleared", lambda _dag_id, _run_id: said.times)
    for module, name in ((callbacks, "known_failed_tasks"), (watch, "failed_tasks")):
        monkeypatch.setattr(module, name, lambda _dag_id, _run_id: said.failed)
    return said


@pytest.fixture(scope="package")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
    # The boot script runs with the Python that PATH finds first, as on a TPU VM.
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    folder = tmp_path_factory.mktemp("cloud")
    with start_emulator(folder, vm_env={"PATH": path}) as running:
        yield running


@pytest.fixture
def world(emulator: RunningEmulator, tmp_path: Path) -> Iterator[World]:
    with World.create(emulator, tmp_path) as world:
        yield world


@pytest.fixture
def driver(world: World, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Runs operators of a new pipeline run against the emulated cloud."""
    return Driver.create(world, monkeypatch)
