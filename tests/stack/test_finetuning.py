"""The fine-tuning DAG, run for real on a model that the main DAG has made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from local.demo import tiny
from local.stack.airflow_api import TaskInstance
from pipeline_alerts.delivery import list_alerts
from pipeline_config import FinetuningConfig
from pipeline_store import identity, uris
from pipeline_store.formats import (
    Alert,
    FinetuningReport,
    Ledger,
    OutcomeKind,
    RunEstimate,
    RunOutcome,
    TaskSplit,
    TrialResult,
)
from pipeline_store.layout import RunLayout
from tests import attacks
from tests.stack.driver import RUN_SECONDS, Pipeline, until
from tests.stack.story import FIRST_NOUN, FirstModel
from tests.stack.thief import Thief, is_refused
from tpu_lifecycle.records.trainings import rental_folders

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

DAG_ID = "bert_finetuning"
FIRST_TRIAL = f"{FIRST_NOUN}.model.0.003.1"
RENTED = ("reserve", "create", "finetune", "delete")


@pytest.fixture(scope="module")
def tuned(pipeline: Pipeline) -> Iterator[Pipeline]:
    """The pipeline with the DAG switched on."""
    pipeline.api.wait_for_dag(DAG_ID)
    pipeline.api.unpause(DAG_ID)
    try:
        yield pipeline
    finally:
        pipeline.api.pause(DAG_ID)


def folder_of(pipeline: Pipeline, run_id: str) -> RunLayout:
    return pipeline.store.run(identity.run_key(DAG_ID, run_id))


def finish(pipeline: Pipeline, dag_id: str, run_id: str) -> tuple[str, list[TaskInstance]]:
    ended = pipeline.api.wait_for_run(dag_id, run_id, seconds=RUN_SECONDS)
    return ended.state, pipeline.api.task_instances(dag_id, run_id)


def states(tasks: list[TaskInstance]) -> dict[tuple[str, int], str | None]:
    return {(task.task_id, task.map_index): task.state for task in tasks}


def assert_nothing_left(pipeline: Pipeline) -> None:
    pipeline.assert_nothing_left()
    assert pipeline.vm_processes("training.finetune") == []


def test_a_promotion_trains_classifiers_on_two_tpus_one_of_which_is_taken_away(
    tuned: Pipeline, first_model: FirstModel
) -> None:
    version = RunOutcome.load(tuned.run(first_model.run_id).outcome).version_id
    assert first_model.announced.state == "success"
    run_id = f"promotion__{version}"
    assert tuned.api.run(DAG_ID, run_id).conf == {"encoder.version": version}
    run = folder_of(tuned, run_id)
    place = run.trial(FIRST_TRIAL).training
    until(lambda: uris.list_files(place.checkpoints), name="a checkpoint of the first trial")
    [node] = [node for node in tuned.admin.table()["nodes"] if run.root[-12:] in node["node_id"]]
    tuned.admin.preempt(node["name"])
    state, tasks = finish(tuned, DAG_ID, run_id)
    found = states(tasks)
    assert state == "success", found
    assert {found[f"tpu.{name}", tpu] for name in RENTED for tpu in (0, 1)} == {"success"}
    for name in ("plan", "report", "end"):
        assert found[name, -1] == found["prepare", 0] == "success"
    # No formats were asked for, and nothing was to be predicted.
    assert {found[name, -1] for name in ("export", "compress", "predict")} == {"skipped"}
    assert_nothing_left(tuned)

    own, further = rental_folders(run)
    assert len(Ledger.load(own.reservation(1).ledger).entries) == 2
    assert len(Ledger.load(further.reservation(1).ledger).entries) == 1
    interrupted = TrialResult.load(run.trial(FIRST_TRIAL).result)
    assert interrupted.resumed_from != []
    other = TrialResult.load(run.trial(FIRST_TRIAL.replace("model", "start")).result)
    assert other.resumed_from == []
    assert set(interrupted.scores) == {TaskSplit.VALIDATION, TaskSplit.TEST}

    report = FinetuningReport.load(run.training_summary)
    assert {one.task for one in report.tasks} == {FIRST_NOUN}
    assert [one.model for one in report.tasks] == ["model", "start"]
    assert [one.reference for one in report.comparisons] == ["start"]
    assert uris.exists(run.training_page)
    assert RunOutcome.load(run.outcome).outcome is OutcomeKind.COMPLETED
    log = tuned.api.task_log(DAG_ID, run_id, "report")
    assert f"Did it pay? {report.comparisons[0].sentence}" in log
    # What it would take was said first.
    log = tuned.api.task_log(DAG_ID, run_id, "validate")
    assert RunEstimate.load(run.estimate).lines[0] in log
    assert re.search(r"\d+/\d+", tuned.api.task_log(DAG_ID, run_id, "tpu.finetune", map_index=1))


def test_a_bad_request_costs_nothing(tuned: Pipeline) -> None:
    before = tuned.calls("CreateQueuedResource")
    run_id = tuned.api.trigger(DAG_ID, {"finetuning.tasks": ["absent"]})
    state, tasks = finish(tuned, DAG_ID, run_id)
    assert state == "failed"
    found = states(tasks)
    assert found["validate", -1] == found["end", -1] == "failed"
    assert "tasks/absent/task.toml does not exist" in tuned.api.task_log(DAG_ID, run_id, "validate")
    assert tuned.calls("CreateQueuedResource") == before


def test_who_may_trigger_reads_no_file_of_the_worker(
    tuned: Pipeline, thief: Thief, first_model: FirstModel
) -> None:
    version = RunOutcome.load(tuned.run(first_model.run_id).outcome).version_id
    before = tuned.calls("CreateQueuedResource")
    locked = attacks.installation_settings(FinetuningConfig)
    locked_run = thief.user.trigger(DAG_ID, locked)
    runs = {
        thief.user.trigger(DAG_ID, {"encoder.version": version} | conf): conf
        for conf in attacks.task_requests(FinetuningConfig, list(thief.tasks))
    }
    lines = thief.refusals(DAG_ID, locked_run)
    only = re.compile("only the installation sets")
    assert [name for name in locked if not is_refused(lines, f" {name}: ", only)] == [], lines
    thief.assert_tasks_are_refused(DAG_ID, runs)
    assert tuned.calls("CreateQueuedResource") == before
    thief.assert_nothing_is_seen()


@pytest.mark.parametrize("marked", ["success", "failed"])
def test_a_run_that_a_person_ends_while_it_trains_is_red_and_one_alert_says_who(
    tuned: Pipeline, first_model: FirstModel, marked: str
) -> None:
    version = RunOutcome.load(tuned.run(first_model.run_id).outcome).version_id
    endless = {"encoder.version": version, "finetuning.num_train_epochs": 900.0}
    run_id = tuned.api.trigger(DAG_ID, endless)
    run = folder_of(tuned, run_id)
    place = run.trial(FIRST_TRIAL).training
    until(lambda: uris.list_files(place.checkpoints), name="a checkpoint of the first trial")
    tuned.api.mark_run(DAG_ID, run_id, marked)
    until(lambda: tuned.api.run(DAG_ID, run_id).state == "failed", name="a run that is red")
    # A run that a promotion has started may go on beside it.
    keys = [folder.root.rpartition("/")[2] for folder in rental_folders(run)]
    nodes = [node["node_id"] for node in tuned.admin.table()["nodes"]]
    assert [node for node in nodes if any(key in node for key in keys)] == []
    outcome = RunOutcome.load(run.outcome)
    assert outcome.outcome is OutcomeKind.FAILED
    assert "ended by admin" in outcome.reason
    note = until(lambda: tuned.api.request("GET", f"/dags/{DAG_ID}/dagRuns/{run_id}")["note"])
    assert note.startswith("Failed: ended by admin")
    everybody = [Alert.load(uri) for uri in list_alerts(tuned.store)]
    told = [alert for alert in everybody if alert.run_id == run_id]
    assert [alert.cause for alert in told] == ["run-failed"]
    assert "ended by admin" in told[0].reason


@pytest.mark.slow
def test_what_was_trained_is_exported_and_used_without_a_tpu(
    tuned: Pipeline, first_model: FirstModel
) -> None:
    version = RunOutcome.load(tuned.run(first_model.run_id).outcome).version_id
    short = {"encoder.version": version, "finetuning.num_train_epochs": 2.0}
    run_id = tuned.api.trigger(DAG_ID, short)
    assert finish(tuned, DAG_ID, run_id)[0] == "success"
    before = tuned.calls("CreateQueuedResource")
    source = {
        "encoder.version": version,
        "finetuning.source_run": folder_of(tuned, run_id).root.rpartition("/")[2],
    }
    folder = tuned.store.task(FIRST_NOUN)
    uris.write(folder.description, b'text_column = "text"\npredict = "new.tsv"\n')
    noun = tiny.NOUNS[0]
    uris.write(uris.join(folder.root, "new.tsv"), f"text\nthe {noun} runs.\n".encode())
    modes: dict[str, dict[str, Any]] = {
        "export": {
            "finetuning.export_formats": ["hugging_face", "saved_model"],
            "compression.children": ["tflite_float16"],
        },
        "predict": {},
    }
    for mode, more in modes.items():
        run_id = tuned.api.trigger(DAG_ID, source | {"finetuning.mode": mode} | more)
        state, tasks = finish(tuned, DAG_ID, run_id)
        found = states(tasks)
        assert state == "success", tuned.api.task_log(DAG_ID, run_id, "validate")
        assert found[mode, -1] == "success", found
        assert found["report", -1] == found["tpu.create", -1] == "skipped", found
        run = folder_of(tuned, run_id)
        assert RunOutcome.load(run.outcome).outcome is OutcomeKind.COMPLETED
        if mode == "predict":
            lines = uris.read(run.predictions(FIRST_NOUN)).decode().splitlines()
            assert len(lines) == 2
            assert "early" in lines[1] or "late" in lines[1]
        else:
            assert any(uri.endswith("exports.json") for uri in uris.list_files(run.exports.root))
            # Of the run that has trained the classifier; whether so small a one pays is no matter.
            assert found["compress", -1] == "success", found
            trained = tuned.store.run(source["finetuning.source_run"])
            assert uris.exists(trained.children(FIRST_TRIAL).child("tflite_float16").record)
    assert tuned.calls("CreateQueuedResource") == before
