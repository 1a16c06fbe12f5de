"""Backfills of the main DAG by REST and on the command line: dry run, create, cancel.

The DAG is paused meanwhile, so that nothing runs. What such runs do is in ``test_main_job.py``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest

from local.stack.airflow_api import AirflowApi, AirflowApiError, BackfillRequest, DagRun
from tests.stack.driver import DAG_ID, TINY, Pipeline, until

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

# Before the DAG's start date, and days that no other test uses.
FIRST = datetime(2024, 2, 28, tzinfo=UTC)
KEYS = ["2024-02-28", "2024-02-29", "2024-03-01"]
REQUEST = BackfillRequest(DAG_ID, FIRST, FIRST + timedelta(days=2), TINY, max_active_runs=2)


@pytest.fixture
def api(pipeline: Pipeline) -> Iterator[AirflowApi]:
    api = pipeline.api
    # Airflow takes one backfill of a DAG at a time, and looks twice a minute whether one has ended.
    until(lambda: all(backfill.completed for backfill in api.backfills(DAG_ID)), name="no backfill")
    api.pause(DAG_ID)
    try:
        yield api
    finally:
        for run in runs(api):
            if not run.finished:
                api.mark_run(DAG_ID, run.run_id, "failed")
        api.unpause(DAG_ID)


def runs(api: AirflowApi) -> list[DagRun]:
    """Return the runs of these tests' days, in order of the day."""
    path = f"/dags/{DAG_ID}/dagRuns"
    found = api.request("GET", path, params={"run_type": "backfill", "limit": 100})["dag_runs"]
    chosen = sorted(run["partition_key"] for run in found if run["partition_key"] in KEYS)
    ids = {run["partition_key"]: run["dag_run_id"] for run in found}
    return [api.run(DAG_ID, ids[key]) for key in chosen]


def test_by_rest_a_backfill_is_shown_then_created_then_cancelled(api: AirflowApi) -> None:
    assert api.backfill_dry_run(REQUEST) == KEYS
    assert runs(api) == []

    backfill = api.create_backfill(REQUEST)
    created = runs(api)
    assert [run.run_type for run in created] == ["backfill"] * 3
    assert [run.conf for run in created] == [TINY] * 3
    assert [run.state for run in created] == ["queued"] * 3
    # Days that have a run already are left out.
    assert api.backfill_dry_run(REQUEST) == []
    with pytest.raises(AirflowApiError) as second:
        api.create_backfill(REQUEST)
    assert second.value.status == HTTPStatus.CONFLICT

    api.cancel_backfill(backfill.backfill_id)
    assert [run.state for run in runs(api)] == ["failed"] * 3
    assert api.backfill(backfill.backfill_id).completed
    assert api.backfill_dry_run(replace(REQUEST, reprocess="failed")) == KEYS


@pytest.mark.parametrize(
    "conf", [{"training.global_batch_size": [4]}, {"training.partitions": "some"}], ids=str
)
def test_a_backfill_with_a_wrong_type_or_choice_is_refused(
    api: AirflowApi, conf: dict[str, object]
) -> None:
    # Limits are for each run's first task.
    request = replace(REQUEST, first=FIRST - timedelta(days=9), last=FIRST, conf=conf)
    for ask in (api.backfill_dry_run, api.create_backfill):
        with pytest.raises(AirflowApiError, match=next(iter(conf))) as refused:
            ask(request)
        assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY


def test_the_command_line_shows_the_days_of_a_backfill(pipeline: Pipeline) -> None:
    words = "backfill create --dry-run --from-date 2023-12-31 --to-date 2024-01-01 --dag-id"
    result = subprocess.run(
        [sys.executable, "-m", "airflow", *words.split(), DAG_ID],
        env=pipeline.stack.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "2023-12-31" in result.stdout
    assert "2024-01-01" in result.stdout


def test_a_dag_that_listens_to_events_cannot_be_backfilled(pipeline: Pipeline) -> None:
    # Why the main DAG keeps its own timetable, and events start it through a DAG of their own.
    pipeline.api.wait_for_dag("corpus_arrivals")
    request = replace(REQUEST, dag_id="corpus_arrivals", conf=None)
    with pytest.raises(AirflowApiError, match="non-periodic") as refused:
        pipeline.api.create_backfill(request)
    assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
