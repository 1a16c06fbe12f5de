"""Partitions that arrive start runs of the main DAG: noticed in the folder, or told by REST.

The main DAG is paused meanwhile: its runs stay queued, which is enough to see what was started.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from local.stack.airflow_api import AirflowApiError, DagRun
from pipeline_store import uris
from tests.stack.driver import DAG_ID, Pipeline, until

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

WATCH, ARRIVALS = "corpus_watch", "corpus_arrivals"
ASSET = "corpus_partition"
SECONDS = 180.0


class Arrivals:
    """The two DAGs of the arrivals over a pipeline whose main DAG is paused."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.api = pipeline.api
        self.store = pipeline.store

    def write(self, partition: str, *names: str) -> None:
        """Put files into a partition."""
        for name in names:
            uris.write(uris.join(self.store.root, "corpus", partition, name), b"some text")

    def look(self) -> str | None:
        """Let the watch look once, and return the state of its task."""
        run_id = self.api.trigger(WATCH)
        self.api.wait_for_run(WATCH, run_id, seconds=SECONDS)
        [task] = self.api.task_instances(WATCH, run_id)
        return task.state

    def received(self, count: int) -> list[dict[str, str | None]]:
        """Wait for so many finished runs of the receiving DAG; return their tasks, newest first."""

        def finished() -> list[DagRun] | None:
            runs = self.api.runs(ARRIVALS)
            return runs if len(runs) >= count and all(run.finished for run in runs) else None

        runs = until(finished, seconds=SECONDS, name=f"{count} finished runs of {ARRIVALS}")
        return [
            {task.task_id: task.state for task in self.api.task_instances(ARRIVALS, run.run_id)}
            for run in runs
        ]

    def log_of_start(self) -> str:
        """Return what the newest run says of the start of the main DAG, over all of its tries."""
        run_id = self.api.runs(ARRIVALS)[0].run_id
        [start] = [
            task for task in self.api.task_instances(ARRIVALS, run_id) if task.task_id == "start"
        ]
        tries = range(1, start.try_number + 1)
        return "\n".join(
            self.api.task_log(ARRIVALS, run_id, "start", try_number=number) for number in tries
        )

    def count(self) -> int:
        """Return how many runs the receiving DAG has had."""
        return len(self.api.runs(ARRIVALS))

    def started(self, partition: str) -> list[DagRun]:
        """Return the runs of the main DAG that were started for a partition, newest first."""
        prefix = f"arrival__{partition}__"
        return [run for run in self.api.runs(DAG_ID) if run.run_id.startswith(prefix)]


@pytest.fixture(scope="module")
def arrivals(pipeline: Pipeline) -> Iterator[Arrivals]:
    api = pipeline.api
    api.pause(DAG_ID)
    for dag_id in (WATCH, ARRIVALS):
        api.wait_for_dag(dag_id)
        api.unpause(dag_id)
    arrivals = Arrivals(pipeline)
    try:
        # Nothing that was there before is announced.
        assert arrivals.look() == "skipped"
        yield arrivals
    finally:
        for dag_id in (WATCH, ARRIVALS):
            api.pause(dag_id)
        for run in api.runs(DAG_ID):
            if run.run_id.startswith("arrival__") and not run.finished:
                api.mark_run(DAG_ID, run.run_id, "failed")
        api.unpause(DAG_ID)


def test_a_folder_that_is_complete_starts_one_run_and_a_changed_one_another(
    arrivals: Arrivals,
) -> None:
    before = arrivals.count()
    arrivals.write("2026-03-01", "a.txt")
    assert arrivals.look() == "skipped"
    arrivals.write("2026-03-01", "_READY")
    assert arrivals.look() == "success"
    tasks = arrivals.received(before + 1)[0]
    # A start whose answer was lost is asked for again, and then skipped, as its run exists.
    success = {"receive": "success", "start": "success", "remember": "success"}
    assert tasks == success, arrivals.log_of_start()
    [run] = arrivals.started("2026-03-01")
    assert run.conf == {"corpus.partition": "2026-03-01"}
    assert (run.state, run.logical_date) == ("queued", None)

    # It has its run now.
    assert arrivals.look() == "skipped"
    arrivals.write("2026-03-01", "b.txt")
    assert arrivals.look() == "success"
    arrivals.received(before + 2)
    assert len({run.run_id for run in arrivals.started("2026-03-01")}) == 2
    assert arrivals.look() == "skipped"


def test_an_event_by_rest_starts_one_run_however_often_it_comes(arrivals: Arrivals) -> None:
    before = arrivals.count()
    arrivals.write("2026-03-02", "a.txt")
    arrivals.api.asset_event(ASSET, partition_key="2026-03-02")
    arrivals.received(before + 1)
    [run] = arrivals.started("2026-03-02")
    arrivals.api.asset_event(ASSET, partition_key="2026-03-02")
    tasks = arrivals.received(before + 2)[0]
    assert tasks == {"receive": "success", "start": "skipped", "remember": "success"}
    assert arrivals.started("2026-03-02") == [run]
    # The watch knows of it, though it did not announce it.
    assert arrivals.look() == "skipped"


def test_an_event_without_files_fails_where_people_see_it(arrivals: Arrivals) -> None:
    before = arrivals.count()
    arrivals.api.asset_event(ASSET, partition_key="2031-01-01")
    tasks = arrivals.received(before + 1)[0]
    assert tasks["receive"] == "failed"
    assert tasks["start"] == "upstream_failed"
    assert arrivals.started("2031-01-01") == []


def test_what_arrives_while_the_receiver_is_paused_is_not_lost(arrivals: Arrivals) -> None:
    before = arrivals.count()
    arrivals.api.pause(ARRIVALS)
    try:
        arrivals.write("2026-03-03", "a.txt", "_SUCCESS")
        assert arrivals.look() == "success"
        assert arrivals.count() == before
    finally:
        arrivals.api.unpause(ARRIVALS)
    assert arrivals.look() == "success"
    arrivals.received(before + 1)
    assert len(arrivals.started("2026-03-03")) == 1


def test_a_run_by_hand_takes_a_day_as_its_partition_key(arrivals: Arrivals) -> None:
    def trigger(key: str) -> dict[str, str]:
        body = {"logical_date": None, "partition_key": key}
        run: dict[str, str] = arrivals.api.request("POST", f"/dags/{DAG_ID}/dagRuns", json=body)
        return run

    run = trigger("2026-03-04")
    assert (run["partition_key"], run["state"]) == ("2026-03-04", "queued")
    arrivals.api.mark_run(DAG_ID, run["dag_run_id"], "failed")
    with pytest.raises(AirflowApiError, match="key_format") as refused:
        trigger("not a day")
    assert refused.value.status == HTTPStatus.BAD_REQUEST
