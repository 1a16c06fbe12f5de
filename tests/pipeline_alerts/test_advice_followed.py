"""For each cause of an alert the test in which somebody follows its advice, and it helps."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pipeline_alerts.causes import ADVICE, Cause

ROOT = Path(__file__).parents[2]
ADVISED = "plugins/test_advice.py"
STANDSTILL = "stack/test_standstill.py::test_a_halted_scheduler_and_a_pause_are_told_and_clear"
BUDGET = f"{ADVISED}::test_after_a_budget_that_was_used_up_reserve_is_cleared"

FOLLOWED: dict[Cause, tuple[str, ...]] = {
    Cause.TASK_FAILED: (
        f"{ADVISED}::test_a_file_that_the_reason_names_is_mended_and_the_task_cleared",
        # Unless another model has come into use: then a new run is what helps.
        "plugins/test_lineage.py::test_a_run_that_was_planned_from_another_model_stops_before_it_waits",
    ),
    Cause.RUN_FAILED: (f"{ADVISED}::test_what_broke_a_job_is_mended_and_the_task_cleared",),
    Cause.ENDED_WITHOUT_OUTCOME: (
        "stack/test_main_job.py::test_a_run_that_is_cleared_claims_its_lineage_again",
    ),
    Cause.REJECTED: ("stack/test_notes.py::test_a_rejected_run_is_a_success_whose_note_says_why",),
    Cause.APPROVAL_WAITING: (
        "pipeline_alerts/test_watch.py::test_a_question_that_was_answered_is_no_news",
    ),
    Cause.OVERDUE: (
        "stack/test_alerts.py::test_a_run_that_goes_on_is_told_to_be_late_and_to_wait_for_a_person",
    ),
    Cause.BUDGET_HOURS: (BUDGET,),
    Cause.BUDGET_CHIP_HOURS: (BUDGET,),
    Cause.BUDGET_PREEMPTIONS: (BUDGET,),
    Cause.NO_TPU: (f"{ADVISED}::test_when_no_tpu_was_free_the_task_is_cleared_once_some_are",),
    Cause.PREEMPTION_STORM: (
        (
            "plugins/test_losses_in_a_run.py::"
            "test_a_training_that_is_preempted_five_times_ends_with_equal_weights"
        ),
    ),
    Cause.JOB_HUNG: ("tpu_agent/test_hangs.py::test_a_hung_job_is_explained_and_started_again",),
    Cause.RUN_STALLED: (STANDSTILL,),
    Cause.TPU_WITHOUT_JOB: (STANDSTILL,),
    Cause.PAUSED_WITH_TPU: (STANDSTILL,),
    Cause.WATCH_SILENT: (
        "pipeline_alerts/test_outside.py::test_the_watch_itself_clears_that_it_was_silent",
    ),
    Cause.REAPER_SILENT: (
        "tpu_lifecycle/test_reaper.py::test_the_command_tells_whether_the_reaper_lives",
    ),
    Cause.NEW_IDENTITY: (
        "tpu_lifecycle/test_installations.py::test_another_place_is_told_and_the_first_one_is_not",
    ),
    Cause.QUARANTINED: (
        "model_registry/test_attempts.py::test_text_that_has_changed_leaves_the_quarantine",
        (
            "model_registry/test_attempts.py::"
            "test_a_run_for_a_partition_in_quarantine_trains_on_it_all_the_same"
        ),
    ),
    Cause.BACKFILL_ENDED: ("stack/test_browser_backfill.py",),
    Cause.NOTHING_NEW: ("pipeline_alerts/test_watch.py::test_a_new_partition_ends_the_quiet",),
    Cause.MAINTENANCE_FAILED: (
        "plugins/test_alerting.py::test_a_failed_maintenance_dag_is_told_once_a_day",
    ),
    Cause.TEST: (
        "pipeline_alerts/test_alerts_command.py::test_a_test_alert_is_delivered_by_the_next_pass",
    ),
}


def test_each_advice_is_followed_somewhere() -> None:
    assert FOLLOWED.keys() == ADVICE.keys() == {*Cause}


@pytest.mark.parametrize("place", sorted({place for found in FOLLOWED.values() for place in found}))
def test_the_test_is_there(place: str) -> None:
    file, _, name = place.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    tests = {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
    assert (name or next(one for one in tests if one.startswith("test_"))) in tests
