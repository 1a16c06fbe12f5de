"""One TensorFlow for all tests of this folder, with virtual CPUs to test replicas on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline_store.layout import RunLayout
from tests.pipeline_store.stores import cloud_storage
from tests.training.corpora import TinyStore
from tests.training.jobs import train

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


@pytest.fixture(scope="session")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> TwoDays:
    """Return two trained days; tests must not change them."""
    return TwoDays(TinyStore.create(tmp_path_factory.mktemp("two-days")))
