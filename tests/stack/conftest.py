"""One local stack for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_stack.paths import RuntimePaths
from local_stack.stack import Stack
from pipeline_store.layout import StoreLayout
from tests.stack.driver import DAG_ID, Pipeline
from tpu_emulator.admin import AdminClient


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    stack = Stack(tmp_path_factory.mktemp("stack") / "state")
    with stack:
        api = stack.api()
        api.wait_for_dag(DAG_ID)
        api.unpause(DAG_ID)
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        with AdminClient(socket) as admin:
            pipeline = Pipeline(stack, api, admin, StoreLayout(str(stack.paths.store)))
            for seed, partition in enumerate(("2026-01-01", "2026-01-02")):
                pipeline.write_corpus(partition, seed=seed)
            yield pipeline
