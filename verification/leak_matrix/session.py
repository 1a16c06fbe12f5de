"""Runs the stack for a matrix: real Airflow, PostgreSQL and emulator, with the matrix's DAGs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local.stack.airflow_api import AirflowApi
from local.stack.breaking import Breaker
from local.stack.paths import REPOSITORY, RuntimePaths
from local.stack.stack import Stack
from tpu_lifecycle.boot.bundle import PACKAGES
from verification.leak_matrix.accidents import Accidents
from verification.leak_matrix.catalogue import SCENARIOS
from verification.leak_matrix.cloud import Cloud
from verification.leak_matrix.layers import Layer
from verification.leak_matrix.scenario import Scenario

FAKE_TRAINER = Path(__file__).with_name("fake_trainer")
DAG_FILE = """\
# An Airflow DAG file: all DAGs {what}.
from verification.leak_matrix.dags.factory import dags

globals().update(dags({argument}))
"""
AIRFLOW = {
    "CORE__PARALLELISM": "16",
    # No file changes while the matrix runs, but for those that are removed.
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    # A dead task is noticed after this, not after five minutes.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "5",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
}


@dataclass(frozen=True)
class Session:
    """A running stack with its clients."""

    stack: Stack
    api: AirflowApi
    cloud: Cloud
    accidents: Accidents
    without: Layer | None


@contextmanager
def session(
    state_dir: Path,
    without: Layer | None,
    *,
    fresh: bool,
    scenarios: Sequence[Scenario] = SCENARIOS,
) -> Iterator[Session]:
    """Run a stack for the matrix while the block runs.

    :param state_dir: folder of the stack.
    :param scenarios: the scenarios that it has DAGs for.
    :param without: the layer that is turned off for all scenarios.
    :param fresh: whether an earlier stack in the folder is removed first.
    :raises StackError: it does not start.
    """
    if fresh:
        Stack(state_dir, say=lambda line: None).down()
        shutil.rmtree(state_dir, ignore_errors=True)
    code, dags = state_dir / "code", state_dir / "dags"
    write_code(code)
    write_dags(dags, scenarios)
    environment = {f"AIRFLOW__{name}": value for name, value in AIRFLOW.items()}
    environment |= {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "LEAK_MATRIX_CODE": str(code),
        "LEAK_MATRIX_SCENARIOS": ",".join(scenario.id for scenario in scenarios),
        "LEAK_MATRIX_WITHOUT": without or "",
    }
    stack = Stack(state_dir, extra_environment=environment)
    with stack:
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        cloud = Cloud(socket, stack.paths.emulator)
        try:
            with stack.api() as api:
                for scenario in scenarios:
                    api.wait_for_dag(scenario.dag_id)
                yield Session(stack, api, cloud, Accidents(Breaker(stack)), without)
        finally:
            cloud.close()


def write_code(folder: Path) -> None:
    """Write the code for TPU VMs: the real agent and its libraries, and the fake trainer."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for package in set(PACKAGES) - {"training"}:
        shutil.copytree(REPOSITORY / package, folder / package, ignore=ignored)
    shutil.copytree(FAKE_TRAINER / "training", folder / "training", ignore=ignored)


def write_dags(folder: Path, scenarios: Sequence[Scenario]) -> None:
    """Write the DAG files: one for nearly all scenarios, and one for each that needs its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "matrix.py").write_text(DAG_FILE.format(what="but a few", argument=""))
    for scenario in scenarios:
        if scenario.shape.own_file:
            content = DAG_FILE.format(what=f"of {scenario.id}", argument=repr(scenario.id))
            (folder / f"{scenario.dag_id}.py").write_text(content)
