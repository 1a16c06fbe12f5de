from __future__ import annotations

from pathlib import Path

import pytest

from tests.beam_jobs.labelled.tasks import TaskBench, make_bench


@pytest.fixture
def bench(tmp_path: Path) -> TaskBench:
    return make_bench(tmp_path / "store")


@pytest.fixture(scope="module")
def bench_of_module(tmp_path_factory: pytest.TempPathFactory) -> TaskBench:
    return make_bench(tmp_path_factory.mktemp("store"))
