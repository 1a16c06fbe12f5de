"""A backfill on a real Airflow: in order, from the oldest day's vocabulary, told at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg2
import pytest

from local.stack import settings
from local.stack.airflow_api import BackfillRequest
from local.stack.paths import RuntimePaths
from pipeline_store import uris
from pipeline_store.formats import (
    BackfillRuns,
    RunPlan,
    RunRecord,
    VocabularyInfo,
)
from tests.stack.driver import DAG_ID, TINY, Pipeline, until

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

WATCH = "pipeline_watch"
LINEAGE = "in-order"
FIRST = datetime(2024, 5, 1, tzinfo=UTC)
# The last has no text, so its run is refused.
KEYS = ["2024-05-01", "2024-05-02", "2024-05-03", "2024-05-04"]
CONF = TINY | {"model.lineage_id": LINEAGE}
REQUEST = BackfillRequest(DAG_ID, FIRST, FIRST + timedelta(days=3), CONF, max_active_runs=4)


@pytest.fixture
def ended(pipeline: Pipeline) -> BackfillRuns:
    """A backfill that has ended, whose oldest day takes longest to prepare."""
    api = pipeline.api
    until(lambda: all(backfill.completed for backfill in api.backfills(DAG_ID)), name="no backfill")
    for seed, key in enumerate(KEYS[:-1]):
        pipeline.write_corpus(key, seed=40 + seed, documents=400 if seed else 8000)
    api.create_backfill(REQUEST)
    listed = until(lambda: own_backfill(pipeline), name="the list of runs")
    for run_id in listed.runs:
        pipeline.finish(run_id)
    api.wait_for_dag(WATCH)
    run_id = api.trigger(WATCH)
    assert api.wait_for_run(WATCH, run_id, seconds=300).state == "success"
    summary: BackfillRuns = until(lambda: own_backfill(pipeline, ended=True), name="its summary")
    return summary


def own_backfill(
    pipeline: Pipeline, lineage_id: str = LINEAGE, *, ended: bool = False
) -> BackfillRuns | None:
    found = map(BackfillRuns.load, uris.list_files(pipeline.store.backfills))
    own = (one for one in found if one.lineage_id == lineage_id and (one.ended or not ended))
    return next(own, None)


@contextmanager
def held(pipeline: Pipeline, task_id: str, lineage_id: str) -> Iterator[None]:
    """Keep a task of the oldest queued run from beginning, by a pool that has no slot."""
    pool = {"name": lineage_id, "slots": 0, "include_deferred": False}
    pipeline.api.request("POST", "/pools", json=pool)
    url = settings.database_url("", RuntimePaths.of(pipeline.stack.paths.root))
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "UPDATE task_instance SET pool = %s WHERE id = ("
            "SELECT t.id FROM task_instance t JOIN dag_run r USING (dag_id, run_id) "
            "WHERE r.state = 'queued' AND t.task_id = %s ORDER BY r.partition_key LIMIT 1)",
            (lineage_id, task_id),
        )
        assert cursor.rowcount == 1
    connection.close()
    yield
    opened = {"pool": lineage_id, "slots": 1, "include_deferred": False}
    pipeline.api.request("PATCH", f"/pools/{lineage_id}", json=opened)


@pytest.mark.slow
def test_a_backfill_trains_in_order_and_says_what_it_has_not_learned(
    pipeline: Pipeline, ended: BackfillRuns
) -> None:
    runs = {partition: run_id for run_id, partition in ended.runs.items()}
    assert sorted(runs) == KEYS
    assert not ended.is_backwards
    lineage = pipeline.store.lineage(LINEAGE)
    for key in KEYS[:-1]:
        assert RunRecord.load(pipeline.run(runs[key]).record).backfill == ended.name
    plans = [RunPlan.load(pipeline.run(runs[key]).plan) for key in KEYS[:-1]]
    sequences = [plan.lease_sequence for plan in plans]
    assert sequences == sorted(sequences)
    assert plans[0].parent_version is None
    assert KEYS[0] in VocabularyInfo.load(lineage.vocabulary_info).source
    assert ended.ended is not None
    assert "no file" in ended.not_learned[KEYS[-1]]


def test_a_run_waits_for_an_older_one_that_is_checked_half_a_minute_later(
    pipeline: Pipeline,
) -> None:
    api, lineage_id = pipeline.api, "checked-late"
    until(lambda: all(backfill.completed for backfill in api.backfills(DAG_ID)), name="no backfill")
    first = FIRST + timedelta(days=10)
    for seed, key in enumerate(late := ["2024-05-11", "2024-05-12"]):
        pipeline.write_corpus(key, seed=50 + seed)
    conf = TINY | {"model.lineage_id": lineage_id}
    request = BackfillRequest(DAG_ID, first, first + timedelta(days=1), conf, max_active_runs=2)
    # No run begins before the older one is held.
    api.pause(DAG_ID)
    api.create_backfill(request)
    with held(pipeline, "validate", lineage_id):
        api.unpause(DAG_ID)
        listed = until(lambda: own_backfill(pipeline, lineage_id), name="the list of runs")
        runs = {partition: run_id for run_id, partition in listed.runs.items()}
        older, newer = (runs[key] for key in late)
        until(lambda: pipeline.task(newer, "lineage.claim").state == "deferred", name="a wait")
        time.sleep(30)
        assert pipeline.task(newer, "lineage.claim").state == "deferred"
        assert not uris.exists(pipeline.run(older).record)
    plan = until(lambda: RunPlan.load_or_none(pipeline.run(older).plan), name="the older's turn")
    assert not uris.exists(pipeline.run(newer).plan)
    assert pipeline.task(newer, "lineage.claim").state == "deferred"
    assert plan.parent_version is None
    vocabulary = VocabularyInfo.load(pipeline.store.lineage(lineage_id).vocabulary_info)
    assert late[0] in vocabulary.source
    for run_id in (newer, older):
        api.mark_run(DAG_ID, run_id, "failed")
    for run_id in (newer, older):
        assert pipeline.finish(run_id)[0] == "failed"
