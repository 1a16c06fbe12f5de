"""One TensorFlow for all tests of this folder, with virtual CPUs to test replicas on."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline_store.layout import RunLayout, StoreLayout
from tests.pipeline_store.stores import cloud_storage, moved
from tests.training.corpora import TinyStore
from tests.training.jobs import PREEMPTED, committed_steps, train, train_until

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["cloud_storage"]

VIRTUAL_CPUS = 8


def _make_virtual_cpus() -> None:
    # Only possible before TensorFlow touches a device. Imported here, after our own package has set
    # up its environment.
    import tensorflow as tf

    cpus = tf.config.list_physical_devices("CPU")
    replica = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpus[0], [replica] * VIRTUAL_CPUS)


_make_virtual_cpus()


def replicas(count: int) -> tf.distribute.Strategy:
    """Return a strategy for that many of the virtual CPUs."""
    import tensorflow as tf

    if count == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    # Not the default: the groups of its collective operations are numbered anew in each strategy,
    # so that two of different sizes in one process get into each other's way.
    reduction = tf.distribute.ReductionToOneDevice()
    devices = [f"CPU:{number}" for number in range(count)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


@pytest.fixture
def tiny(tmp_path: Path) -> TinyStore:
    """Return an empty store with a vocabulary."""
    return TinyStore.create(tmp_path / "store")


class TwoDays:
    """A store with two partitions and a model for each, the second continuing the first."""

    def __init__(self, store: TinyStore) -> None:
        self.store = store
        self.manifests = {day: store.partition(day) for day in ("2026-01-01", "2026-01-02")}
        first, second = self.manifests.values()
        self.first: RunLayout = store.run("day1")
        self.second: RunLayout = store.run("day2")
        assert train(store, self.first, first) == 0
        init = ["--init-model", self.first.training.root]
        assert train(store, self.second, second, *init) == 0


@dataclass(frozen=True)
class OneDay:
    """A store with one partition and a run on it."""

    store: TinyStore
    run: RunLayout
    manifest: str

    @classmethod
    def begin(cls, folder: Path) -> OneDay:
        """Return a run of which nothing is trained yet."""
        store = TinyStore.create(folder)
        return cls(store, store.run("r"), store.partition("2026-01-01"))

    def copied_to(self, folder: Path) -> OneDay:
        """Return the same in another folder: what is in the store names its files by their paths.

        A training costs some hundred times as much, as TensorFlow traces and compiles its step.
        """
        old, new = self.store.layout.root, str(folder)
        shutil.copytree(old, new)
        for path in folder.rglob("*.json"):
            path.write_bytes(moved(path.read_bytes(), old, new))
        run = RunLayout(self.run.root.replace(old, new))
        return OneDay(
            TinyStore(StoreLayout(new), self.store.config), run, self.manifest.replace(old, new)
        )


@pytest.fixture(scope="session")
def _half_trained(tmp_path_factory: pytest.TempPathFactory) -> OneDay:
    day = OneDay.begin(tmp_path_factory.mktemp("half-trained") / "store")
    with pytest.MonkeyPatch.context() as patch:
        assert train_until(4, patch, day.store, day.run, day.manifest) == PREEMPTED
    assert committed_steps(day.run) == [4, 8]
    return day


@pytest.fixture
def half_trained(_half_trained: OneDay, tmp_path: Path) -> OneDay:
    """Return a run with checkpoints 4 and 8 of 12 steps; each test has its own."""
    return _half_trained.copied_to(tmp_path / "half-trained")


@pytest.fixture(scope="session")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> TwoDays:
    """Return two trained days; tests must not change them."""
    return TwoDays(TinyStore.create(tmp_path_factory.mktemp("two-days")))


@pytest.fixture
def trained(two_days: TwoDays, tmp_path: Path) -> OneDay:
    """Return the first of two trained days, of 12 steps; each test has its own."""
    day = OneDay(two_days.store, two_days.first, two_days.manifests["2026-01-01"])
    return day.copied_to(tmp_path / "trained")
