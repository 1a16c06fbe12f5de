"""Whoever may trigger runs, and nothing else, gets no file of the worker to see."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from local.stack.airflow_api import BackfillRequest
from pipeline_config import PipelineConfig
from tests import attacks
from tests.stack.driver import DAG_ID, TINY, until
from tests.stack.story import FIRST
from tests.stack.thief import Thief, is_refused

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

# Before the DAG's start date, and a day that no other test uses.
DAY = datetime(2023, 3, 1, tzinfo=UTC)
CHOSEN = TINY | {"corpus.partition": FIRST, "model.lineage_id": "thief"}


def test_who_may_trigger_reads_no_file_of_the_worker(thief: Thief) -> None:
    """All at once: most of the time goes by waiting for processes to start."""
    user, before = thief.user, thief.pipeline.calls("CreateQueuedResource")
    requests = list(thief.outside.requests(PipelineConfig, *thief.files))
    locked = attacks.installation_settings(PipelineConfig)
    paths = {
        user.trigger(DAG_ID, CHOSEN | {"corpus.input_format": "csv"} | conf): conf
        for conf in requests
    }
    locked_run = user.trigger(DAG_ID, CHOSEN | locked)
    probes = {
        user.trigger(DAG_ID, CHOSEN | conf): conf
        for conf in attacks.task_requests(PipelineConfig, list(thief.tasks))
    }
    paths[backfill(thief, requests[0])] = requests[0]

    for run_id, conf in paths.items():
        lines = thief.refusals(DAG_ID, run_id)
        assert [name for name in conf if not is_refused(lines, f" {name}: ")] == [], lines
    lines = thief.refusals(DAG_ID, locked_run)
    only = re.compile("only the installation sets")
    assert [name for name in locked if not is_refused(lines, f" {name}: ", only)] == [], lines
    thief.assert_tasks_are_refused(DAG_ID, probes)
    assert thief.pipeline.calls("CreateQueuedResource") == before
    thief.assert_nothing_is_seen()


def backfill(thief: Thief, conf: dict[str, str]) -> str:
    """Start a backfill of one day; return the id of its run."""
    api = thief.user
    until(lambda: all(one.completed for one in api.backfills(DAG_ID)), name="no other backfill")
    api.create_backfill(BackfillRequest(DAG_ID, DAY, DAY, TINY | conf))
    path = f"/dags/{DAG_ID}/dagRuns"
    found = api.request("GET", path, params={"run_type": "backfill", "limit": 100})["dag_runs"]
    [run_id] = [run["dag_run_id"] for run in found if run["partition_key"] == f"{DAY:%Y-%m-%d}"]
    return str(run_id)
