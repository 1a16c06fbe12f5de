"""What Airflow's own lists show of runs that have ended: their state and their note."""

from __future__ import annotations

import pytest

from pipeline_store.formats import OutcomeKind, RunOutcome
from tests.stack.driver import DAG_ID, Pipeline, until
from tests.stack.story import FIRST

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

ABOUT = f"Partition {FIRST}, lineage noted"


def note(pipeline: Pipeline, run_id: str) -> str:
    """Return a run's note as soon as it has one."""
    path = f"/dags/{DAG_ID}/dagRuns/{run_id}"
    found: str = until(lambda: pipeline.api.request("GET", path)["note"], name="a note")
    return found


def test_a_rejected_run_is_a_success_whose_note_says_why(pipeline: Pipeline) -> None:
    # A model that has learned nothing is no better than guessing by frequency.
    nothing = {"training__train_steps": 1, "optimizer__learning_rate": 1e-9}
    run_id = pipeline.trigger(FIRST, "noted", optimizer__warmup_steps=0, **nothing)
    state, _ = pipeline.finish(run_id)
    outcome = RunOutcome.load(pipeline.run(run_id).outcome)
    assert outcome.outcome is OutcomeKind.REJECTED
    assert state == "success"
    shown = note(pipeline, run_id)
    assert shown.startswith("Rejected: ")
    assert shown.endswith(ABOUT)


def test_a_run_that_a_person_ends_while_it_trains_is_red_and_says_who(pipeline: Pipeline) -> None:
    run_id = pipeline.trigger(FIRST, "noted", training__train_steps=4000)
    pipeline.wait_for_checkpoint(run_id)
    pipeline.api.mark_run(DAG_ID, run_id, "failed")
    outcome = until(lambda: RunOutcome.load_or_none(pipeline.run(run_id).outcome), name="an end")
    assert pipeline.finish(run_id)[0] == "failed"
    assert outcome.outcome is OutcomeKind.FAILED
    until(lambda: note(pipeline, run_id).startswith("Failed: ended by admin"), name="the person")
    assert note(pipeline, run_id).endswith(ABOUT)
    pipeline.assert_nothing_left()


def test_a_run_that_a_person_ends_before_it_has_its_lineage_is_red_too(pipeline: Pipeline) -> None:
    run_id = pipeline.trigger(FIRST, "noted-early")
    until(lambda: pipeline.task(run_id, "validate").state == "success", name="validate")
    pipeline.api.mark_run(DAG_ID, run_id, "failed")
    assert pipeline.finish(run_id)[0] == "failed"
    assert note(pipeline, run_id).startswith("Marked as failed by admin")


def test_a_refused_run_is_red_and_its_note_has_all_reasons(pipeline: Pipeline) -> None:
    wrong = {"tpu__accelerator_type": "v5litepod-9", "optimizer__warmup_steps": 999}
    run_id = pipeline.trigger(FIRST, "noted", **wrong)
    assert pipeline.finish(run_id)[0] == "failed"
    shown = note(pipeline, run_id)
    assert shown.startswith("Refused: ")
    assert "optimizer.warmup_steps" in shown
    assert "v5litepod-9" in shown
