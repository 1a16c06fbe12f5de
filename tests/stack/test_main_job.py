"""The main DAG, run for real: PostgreSQL, Airflow, Beam, the TPU emulator and TensorFlow."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from urllib.parse import urlencode

import psutil
import pytest

from model_registry import lease
from operators.python_module import GUARD
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    Ledger,
    ModelVersion,
    OutcomeKind,
    ProbeReport,
    ProductionPointer,
    RunEstimate,
    RunOutcome,
    RunPlan,
    TrainingResult,
    Verdict,
    VerdictKind,
)
from pipeline_store.layout import LineageLayout
from tests.stack.driver import DAG_ID, TINY, Pipeline, processes_of, until
from tests.stack.story import ENDINGS, FIRST, LINEAGE, SECOND, FirstModel, settings

pytestmark = pytest.mark.stack

SUCCESS = {
    "validate": "success",
    "data.vocabulary": "success",
    "data.prepare": "success",
    "lineage.claim": "success",
    # The first model is one from nothing.
    "lineage.import": "success",
    "lineage.plan": "success",
    # No labelled tasks are named.
    "lineage.probe_data": "skipped",
    "tpu.reserve": "success",
    "tpu.create": "success",
    "tpu.train": "success",
    "tpu.evaluate": "success",
    "tpu.probe": "skipped",
    "tpu.delete": "success",
    "promotion.judge": "success",
    "promotion.approve": "success",
    "promotion.export": "success",
    "promotion.promote": "success",
    "promotion.release": "success",
}
# On 38 test examples so small a model can lose by chance what it has won.
PROBES = {
    "promotion__probe_tasks": [ENDINGS],
    "promotion__probe_random_seeds": [1, 2],
    "promotion__max_probe_loss": 1.0,
    "promotion__max_total_probe_loss": 1.0,
}
PROBED = SUCCESS | {"lineage.probe_data": "success", "tpu.probe": "success"}


def test_two_days_of_text_become_two_model_versions_though_a_tpu_is_lost(
    pipeline: Pipeline, first_model: FirstModel
) -> None:
    assert first_model.tasks == SUCCESS
    pipeline.assert_nothing_left()

    first = first_model.run_id
    run, lineage = pipeline.run(first), pipeline.store.lineage(LINEAGE)
    # So are the data job's numbers, and its report is a click away.
    prepared = pipeline.log(first, "data.prepare")
    assert re.search(r"shards_processed +2", prepared)
    assert any(uri.endswith(".html") for uri in uris.list_files(lineage.manifests(FIRST)))
    query = urlencode({"dag_id": DAG_ID, "run_id": first, "partition": FIRST})
    assert pipeline.links(first, "data.prepare") == {
        "Data report": f"/repretraining/data-report?{query}",
        "Dataflow job": None,
    }
    assert TrainingResult.load(run.training.result).train_steps == 60
    assert Verdict.load(run.verdict(None)).verdict is VerdictKind.PROMOTED
    pointer = ProductionPointer.load(lineage.production)
    version = ModelVersion.load(lineage.model(pointer.version_id))
    assert version.partitions_seen == [FIRST]
    assert RunOutcome.load(run.outcome).version_id == version.version_id
    assert lease.holder(lineage) is None
    assert RunEstimate.load(run.estimate).lines[0] in pipeline.log(first, "validate")
    published = {file.path.partition("/")[0] for file in version.files}
    assert {"checkpoint", "hugging_face", "saved_model"} <= published
    assert len(Ledger.load(run.reservation(1).ledger).entries) == 1
    # The training's progress is readable where people look for it.
    assert "60/60" in pipeline.log(first, "tpu.train")

    # On the second day the TPU is taken away in the middle of the training, and the candidate is
    # tried on a labelled task, too.
    second = pipeline.trigger(SECOND, **settings(training__train_steps=300, **PROBES))
    checkpoint = uris.join(pipeline.run(second).training.checkpoints, "*.json")
    pipeline.admin.preempt_when_file("*", checkpoint)
    state, tasks = pipeline.finish(second)
    assert (state, tasks) == ("success", PROBED)
    run = pipeline.run(second)
    result = TrainingResult.load(run.training.result)
    assert result.train_steps == 300
    [resumed] = result.resumed_from
    assert resumed >= 10
    assert len(Ledger.load(run.reservation(1).ledger).entries) == 2
    scored = EvaluationReport.load(run.evaluation(version.version_id))
    assert [model.name for model in scored.models] == ["candidate", "baseline"]
    for model in scored.models:
        assert sorted(score.set_name for score in model.sets) == [FIRST, SECOND]
    [comparison] = ProbeReport.load(run.probe(version.version_id)).comparisons
    assert comparison.sentence in pipeline.log(second, "tpu.probe")
    assert Verdict.load(run.verdict(version.version_id)).probes == [comparison]
    pipeline.assert_nothing_left()


@pytest.mark.thorough
def test_the_same_text_once_more_rents_nothing(pipeline: Pipeline, first_model: FirstModel) -> None:
    lineage = pipeline.store.lineage(LINEAGE)
    before = pipeline.calls("CreateQueuedResource")
    again = pipeline.trigger(FIRST, **settings())
    state, tasks = pipeline.finish(again)
    assert state == "success"
    assert tasks["lineage.plan"] == tasks["tpu.create"] == tasks["tpu.delete"] == "skipped"
    assert tasks["promotion.release"] == "success"
    outcome = RunOutcome.load(pipeline.run(again).outcome)
    assert (outcome.outcome, outcome.written_by) == (OutcomeKind.SKIPPED, "lineage.plan")
    assert pipeline.calls("CreateQueuedResource") == before
    assert lease.holder(lineage) is None


@pytest.mark.thorough
def test_a_first_model_is_tried_on_labelled_tasks_and_compared_with_nothing(
    pipeline: Pipeline, first_model: FirstModel
) -> None:
    run_id = pipeline.trigger(FIRST, **settings(lineage="probed", **PROBES))
    assert pipeline.finish(run_id) == ("success", PROBED)
    tried = ProbeReport.load(pipeline.run(run_id).probe(None))
    assert ([one.task for one in tried.tasks], tried.comparisons) == ([ENDINGS], [])
    pipeline.assert_nothing_left()


@pytest.mark.thorough
def test_a_dry_run_spends_nothing(pipeline: Pipeline) -> None:
    before = pipeline.calls("CreateQueuedResource")
    run_id = pipeline.trigger(FIRST, "dry", run__dry_run=True)
    state, tasks = pipeline.finish(run_id)
    assert state == "success"
    assert set(tasks.values()) == {"skipped"}
    run = pipeline.run(run_id)
    assert RunOutcome.load(run.outcome).outcome is OutcomeKind.SKIPPED
    assert RunEstimate.load(run.estimate).lines[0] in pipeline.log(run_id, "validate")
    assert pipeline.calls("CreateQueuedResource") == before
    assert uris.list_files(pipeline.store.lineage("dry").root) == []


def one_that_waits(lineage: LineageLayout) -> str | None:
    """Return the run that waits while another holds the lineage."""
    holder = lease.holder(lineage)
    if holder is None:
        return None
    tickets = (one for one in lease.waiting(lineage) if one.run_key != holder.run_key)
    return next((one.run_id for one in tickets), None)


def wait_for_state(pipeline: Pipeline, run_id: str, task_id: str, state: str) -> None:
    until(lambda: pipeline.task(run_id, task_id).state == state, name=f"{task_id} {state}")


@pytest.mark.slow
def test_the_lineage_of_a_run_that_a_person_ended_is_taken_over(pipeline: Pipeline) -> None:
    lineage = pipeline.store.lineage("ended")
    first = pipeline.trigger(FIRST, "ended", training__train_steps=4000)
    pipeline.wait_for_checkpoint(first)
    second = pipeline.trigger(SECOND, "ended")
    pipeline.write_corpus("2026-01-03", seed=2)
    third = pipeline.trigger("2026-01-03", "ended")
    for run_id in (second, third):
        wait_for_state(pipeline, run_id, "lineage.claim", "deferred")
    # Whoever is ended while waiting holds up nobody.
    pipeline.api.mark_task(DAG_ID, second, "lineage.claim", "failed")
    assert pipeline.finish(second)[0] == "failed"
    until(lambda: len(lease.waiting(lineage)) == 1, name="the end of the second's wait")
    pipeline.api.mark_run(DAG_ID, first, "failed")
    assert pipeline.finish(third)[0] == "success"
    assert RunPlan.load(pipeline.run(third).plan).parent_version is None
    pipeline.assert_nothing_left()


@pytest.mark.thorough
def test_a_run_that_is_cleared_claims_its_lineage_again(pipeline: Pipeline) -> None:
    run_id = pipeline.trigger(FIRST, "cleared", training__train_steps=4000)
    pipeline.wait_for_checkpoint(run_id)
    pipeline.api.mark_task(DAG_ID, run_id, "tpu.train", "failed")
    assert pipeline.finish(run_id)[0] == "failed"
    run, lineage = pipeline.run(run_id), pipeline.store.lineage("cleared")
    outcome = until(lambda: RunOutcome.load_or_none(run.outcome), name="the outcome")
    assert (outcome.outcome, outcome.reason) == (OutcomeKind.FAILED, "failed: tpu.train")
    assert lease.holder(lineage) is None
    pipeline.api.clear_tasks(DAG_ID, run_id, ["tpu.train"])
    until(lambda: lease.holder(lineage), name="the second claim")
    assert pipeline.task(run_id, "lineage.claim").try_number == 2
    until(lambda: not uris.exists(run.outcome), name="an open outcome")
    pipeline.api.mark_run(DAG_ID, run_id, "failed")
    pipeline.finish(run_id)
    pipeline.assert_nothing_left()


def test_a_bad_request_is_refused_before_anything_is_asked_for(pipeline: Pipeline) -> None:
    # Others are refused in tests/plugins/test_repretraining.py, without a stack.
    before = pipeline.calls("CreateQueuedResource")
    run_id = pipeline.trigger(FIRST, "refused", training__train_step=5)
    state, tasks = pipeline.finish(run_id)
    assert state == "failed"
    assert tasks["validate"] == "failed"
    assert "Did you mean 'training.train_steps'?" in pipeline.log(run_id, "validate")
    assert pipeline.calls("CreateQueuedResource") == before


@pytest.mark.thorough
def test_a_data_job_that_is_cancelled_leaves_no_process(pipeline: Pipeline) -> None:
    run_id = pipeline.trigger(FIRST, "cancelled")
    store = pipeline.store.root

    def jobs() -> list[psutil.Process]:
        found = processes_of("-m", "beam_jobs.prepare_corpus", store)
        return [process for process in found if GUARD not in process.info["cmdline"]]

    # Halted, so that it cannot be done before the cancelling reaches it.
    for process in until(jobs, name="the data job"):
        process.suspend()
    pipeline.api.mark_task(DAG_ID, run_id, "data.prepare", "failed")
    assert pipeline.finish(run_id)[0] == "failed"
    until(
        lambda: not processes_of("beam_jobs.prepare_corpus", store), name="the end of the data job"
    )
    assert uris.list_files(pipeline.store.lineage("cancelled").manifests(FIRST)) == []
    pipeline.assert_nothing_left()


@pytest.mark.thorough
def test_a_killed_trainer_a_killed_agent_and_a_lost_tpu_are_survived_by_one_run(
    pipeline: Pipeline,
) -> None:
    run_id = pipeline.trigger(FIRST, "survivor", training__train_steps=600)
    pipeline.wait_for_checkpoint(run_id)
    assert pipeline.kill("training.train") == 1
    pipeline.wait_for_checkpoint(run_id, more=True)
    assert pipeline.kill("tpu_agent") == 1
    pipeline.wait_for_checkpoint(run_id, more=True)
    [node] = pipeline.admin.table()["nodes"]
    pipeline.admin.preempt(node["name"])
    assert pipeline.finish(run_id) == ("success", SUCCESS)
    result = TrainingResult.load(pipeline.run(run_id).training.result)
    assert result.train_steps == 600
    # For the trainer and for the TPU. The end of the agent may end the trainer, too.
    assert len(result.resumed_from) >= 2
    assert result.resumed_from == sorted(result.resumed_from)
    assert result.resumed_from[0] >= 10
    assert len(Ledger.load(pipeline.run(run_id).reservation(1).ledger).entries) == 2
    pipeline.assert_nothing_left()


@pytest.mark.thorough
def test_a_create_in_flight_while_the_task_is_marked_failed_leaves_nothing(
    pipeline: Pipeline,
) -> None:
    pipeline.admin.delay_next("CreateQueuedResource", seconds=8.0, commit_late=True)
    before = pipeline.calls("CreateQueuedResource")
    # The grace period covers the late commit, as the default covers a real create call.
    run_id = pipeline.trigger(FIRST, "in-flight", tpu__delete_grace_seconds=15.0)
    until(lambda: pipeline.calls("CreateQueuedResource") > before, name="the create call")
    pipeline.api.mark_task(DAG_ID, run_id, "tpu.create", "failed")
    _, tasks = pipeline.finish(run_id)
    assert tasks["tpu.delete"] == "success"
    assert tasks["tpu.train"] != "success"
    pipeline.assert_nothing_left()


@pytest.mark.thorough
def test_a_backfill_runs_each_older_partition_once_and_its_runs_take_turns(
    pipeline: Pipeline,
) -> None:
    airflow = [sys.executable, "-m", "airflow", "backfill", "create", "--dag-id", DAG_ID]
    dates = ["--from-date", FIRST, "--to-date", SECOND]
    environment = pipeline.stack.environment()

    def backfill(*words: str) -> str:
        result = subprocess.run(
            [*airflow, *dates, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    dry_run = backfill("--dry-run")
    assert FIRST in dry_run
    assert SECOND in dry_run
    known = {run.run_id for run in pipeline.api.runs(DAG_ID)}
    lineage = pipeline.store.lineage("backfilled")
    conf = TINY | {"model.lineage_id": "backfilled", "training.train_steps": 400}
    backfill("--max-active-runs", "2", "--dag-run-conf", json.dumps(conf))
    runs = until(
        lambda: (
            new if len(new := {r.run_id for r in pipeline.api.runs(DAG_ID)} - known) == 2 else None
        ),
        name="two backfill runs",
    )
    # Both are at work at once, but only one may train.
    # The ticket of the run that claims first is there for a moment, too.
    second = until(lambda: one_that_waits(lineage), name="a run that waits for a holder")
    [first] = runs - {second}
    wait_for_state(pipeline, second, "lineage.claim", "deferred")
    # Meanwhile it has rented nothing.
    assert uris.list_files(pipeline.run(second).reservations) == []
    for run_id in (first, second):
        assert pipeline.finish(run_id)[0] == "success"
    assert f"held by run {first}" in pipeline.log(second, "lineage.claim")
    version = RunOutcome.load(pipeline.run(first).outcome).version_id
    assert version is not None
    assert RunPlan.load(pipeline.run(second).plan).parent_version == version
    assert lease.waiting(lineage) == []
    assert lease.holder(lineage) is None
    partitions = {
        json.loads(uris.read(pipeline.run(run_id).record))["partition"] for run_id in runs
    }
    assert partitions == {FIRST, SECOND}
    pipeline.assert_nothing_left()
