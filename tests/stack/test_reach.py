"""What a data job can reach of the stack, tried in its place; the table in the docs is that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack.driver import RUN_SECONDS, Pipeline
from verification.reach.attempts import Found
from verification.reach.doors import DOORS

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

DAG_ID = "reach_check"


@pytest.fixture(scope="module")
def found(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Return how each door was found, by task."""
    api = pipeline.api
    api.wait_for_dag(DAG_ID)
    api.unpause(DAG_ID)
    run_id = api.trigger(DAG_ID)
    ended = api.wait_for_run(DAG_ID, run_id, seconds=RUN_SECONDS)
    assert ended.state == "success"
    path = f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{{}}/xcomEntries/return_value"
    return {
        task: api.request("GET", path.format(task), params={"deserialize": True})["value"]
        for task in ("reach", "unhidden")
    }


def test_a_data_job_reaches_what_the_table_says(found: dict[str, dict[str, str]]) -> None:
    assert found["reach"] == {door.name: door.laptop for door in DOORS}


def test_the_kernel_is_what_closes_the_doors(found: dict[str, dict[str, str]]) -> None:
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    for door in DOORS:
        is_yamas = door.name == "memory" and yama.exists() and yama.read_text().strip() != "0"
        if door.laptop is not Found.ABSENT and not is_yamas:
            wanted = Found.OPEN if door.by_landlock else door.laptop
            assert found["unhidden"][door.name] == wanted, door.name
