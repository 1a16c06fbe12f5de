"""A pretrained encoder for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.training.corpora import TinyStore
from tests.training.jobs import train


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyStore, str]:
    """Return a store and the training folder of a finished run; tests may add to the store."""
    store = TinyStore.create(tmp_path_factory.mktemp("pretrained"))
    run = store.run("pretraining")
    assert train(store, run, store.partition("2026-01-01")) == 0
    return store, run.training.root
