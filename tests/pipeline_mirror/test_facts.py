"""What MLflow would be told, without one: `make mlflow-check` has a real server."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from model_registry import outcomes, registry
from pipeline_mirror import models, runs
from pipeline_mirror.runs import RunFacts, read_run
from pipeline_store.formats import OutcomeKind, ProductionPointer, RunOutcome, RunRecord
from tests.model_registry.runs import NOW, FinishedRun, two_promoted
from trained_models.metric_files import CHECKPOINT, HELD_OUT, LOOP, MetricFiles


def facts(run: FinishedRun, since: str = "") -> RunFacts:
    outcome = RunOutcome.load_or_none(run.run.outcome)
    return read_run(run.run, RunRecord.load(run.run.record), outcome, since)


@pytest.fixture
def run(tmp_path: Path) -> FinishedRun:
    run = FinishedRun(str(tmp_path / "store"), "1")
    files = MetricFiles(run.run.training.metrics)
    files.add(LOOP, 100, steps=100, loss=6.0, gradient_norm=float("nan"))
    files.add(HELD_OUT, 100, loss=5.0)
    files.add(CHECKPOINT, 100)
    files.publish()
    return run


def test_settings_have_their_dotted_names(run: FinishedRun) -> None:
    params = facts(run).params
    assert params["corpus.partition"] == "day-1"
    assert params["masking.dynamic"] in ("true", "false")
    assert json.loads(params["promotion.export_formats"]) == ["hugging_face", "saved_model"]
    assert max(map(len, params.values())) < 6000


def test_a_number_that_was_not_finite_is_left_out(run: FinishedRun) -> None:
    found = {one.name: (one.value, one.step) for one in facts(run).numbers}
    assert found == {
        "training/steps": (100.0, 100),
        "training/loss": (6.0, 100),
        "held_out/loss": (5.0, 100),
    }


def test_only_what_is_new_is_told_until_the_run_has_ended(run: FinishedRun) -> None:
    seen = facts(run).until
    assert not facts(run, seen).numbers
    files = MetricFiles(run.run.training.metrics)
    files.add(LOOP, 200, steps=100, loss=4.0)
    files.publish()
    assert {one.step for one in facts(run, seen).numbers} == {200}
    outcomes.record(run.run, OutcomeKind.REJECTED, "worse", written_by="test")
    found = {(one.name, one.step) for one in facts(run, facts(run).until).numbers}
    assert {("training/loss", 100), ("training/loss", 200)} <= found
    assert ("evaluation/candidate/day-1/masked_lm_loss", 400) in found


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_every_end_of_a_run_has_a_word_of_mlflows(run: FinishedRun, kind: OutcomeKind) -> None:
    assert facts(run).status == "RUNNING"
    assert facts(run).end is None
    outcomes.record(run.run, kind, "so it was", written_by="test")
    ended = facts(run)
    assert ended.status in ("FINISHED", "FAILED", "KILLED")
    assert ended.end is not None
    assert ended.tags["repretrain.outcome"] == kind
    assert ended.tags["mlflow.note.content"] == "so it was"


def test_a_partition_says_what_it_was_read_for(tmp_path: Path) -> None:
    first, second = two_promoted(tmp_path)
    second.plan(
        replayed={"day-1": first.manifest_uri},
        evaluated={"day-1": first.manifest_uri, "day-2": second.manifest_uri},
    )
    found = {one.name: one.context for one in facts(second).datasets}
    assert found == {"day-1": "replay, evaluation", "day-2": "training, evaluation"}


def test_what_mlflow_does_not_take_in_a_name_is_replaced() -> None:
    assert runs.metric_name("evaluation/a+b/día (new)") == "evaluation/a_b/d_a _new_"


def test_a_pointer_says_why(tmp_path: Path) -> None:
    first, second = two_promoted(tmp_path)
    registry.rollback(second.lineage, first.version_id, reason="wrong words", by="Ada")
    tags = models.pointer_tags(ProductionPointer.load(first.lineage.production))
    assert tags["repretrain.production_version"] == first.version_id
    assert tags["repretrain.rolled_back"] == second.version_id
    assert tags["repretrain.rolled_back_by"] == "Ada"


def test_times_are_milliseconds() -> None:
    assert runs.milliseconds(NOW + timedelta(seconds=1)) - runs.milliseconds(NOW) == 1000
