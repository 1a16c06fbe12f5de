"""One local stack for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import airflow.sdk  # noqa: F401 - before a test imports an operator; see tests/conftest.py
import pytest

from local.stack import parts
from local.stack.paths import REPOSITORY, RuntimePaths, StatePaths
from local.stack.stack import Stack
from pipeline_store.layout import StoreLayout
from tests.stack.driver import DAG_ID, RUN_SECONDS, Pipeline, until
from tests.stack.story import FINETUNING_PRESET, FIRST, SECOND, FirstModel, settings, write_tasks
from tests.stack.thief import Thief, thief_of
from tests.stack.vm_writes import VmWrites
from tpu_emulator.admin import AdminClient

_LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"
# The pipeline's own DAGs, and the one of a rig.
BUNDLES: list[dict[str, Any]] = [
    {"name": "dags-folder", "classpath": _LOCAL, "kwargs": {}},
    {
        "name": "reach",
        "classpath": _LOCAL,
        "kwargs": {"path": str(REPOSITORY / "verification" / "reach" / "dags")},
    },
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the time of the runs that it may wait for."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(2 * RUN_SECONDS), append=False)


@pytest.fixture(scope="package")
def stack_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stack and all that belongs to it lies."""
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="package")
def vm_writes(stack_folder: Path) -> Iterator[VmWrites]:
    """What all TPU VMs of the stack write; at its end none has written what it may not."""
    noted = VmWrites.make(stack_folder / "vm", StatePaths(stack_folder / "state").store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "search_path", lambda: noted.search_path)
        yield noted
    assert noted.forbidden() == []


@pytest.fixture(scope="package")
def pipeline(stack_folder: Path, vm_writes: VmWrites) -> Iterator[Pipeline]:
    folder = stack_folder
    preset = folder / "finetuning.toml"
    preset.write_text(FINETUNING_PRESET)
    environment = {
        "REPRETRAIN_FINETUNING_PRESET": str(preset),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(BUNDLES),
        # One of each role that matters to what a person may see; each is called as its role.
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,user:user,viewer:viewer",
    }
    stack = Stack(folder / "state", extra_environment=environment)
    with stack:
        api = stack.api()
        api.wait_for_dag(DAG_ID)
        api.unpause(DAG_ID)
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        with AdminClient(socket) as admin:
            pipeline = Pipeline(stack, api, admin, StoreLayout(str(stack.paths.store)))
            for seed, partition in enumerate((FIRST, SECOND)):
                pipeline.write_corpus(partition, seed=seed)
            yield pipeline


@pytest.fixture
def thief(pipeline: Pipeline) -> Iterator[Thief]:
    """Give a thief to one test alone: while its links lie in the corpus, no run may read that."""
    with thief_of(pipeline) as thief:
        yield thief


@pytest.fixture(scope="package")
def first_model(pipeline: Pipeline) -> FirstModel:
    """The run that makes the first model of the story; its promotion is listened to."""
    write_tasks(pipeline.store)
    api, listener = pipeline.api, "promoted_models"
    api.wait_for_dag(listener)
    api.unpause(listener)
    run_id = pipeline.trigger(FIRST, **settings())
    state, tasks = pipeline.finish(run_id)
    assert state == "success", tasks
    [announced] = until(lambda: api.runs(listener), name=f"a run of {listener}")
    announced = api.wait_for_run(listener, announced.run_id, seconds=RUN_SECONDS)
    api.pause(listener)
    return FirstModel(run_id, tasks, announced)
