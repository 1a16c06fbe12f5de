"""What the watch finds, in real stores; on both kinds of store where listings matter."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry import outcomes
from model_registry.finetuning_plans import make_rentals
from pipeline_alerts.causes import Cause, base_cause
from pipeline_alerts.listing import list_runs
from pipeline_alerts.raising import AlertedRun, raise_about_run
from pipeline_alerts.watch import WRITER
from pipeline_store import uris
from pipeline_store.formats import (
    Answer,
    AttemptEvent,
    OutcomeKind,
    RunOutcome,
    WatchedRun,
    WatchPass,
)
from pipeline_store.layout import RunLayout, StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.situations import causes, look, new_run, only, record_of
from tests.pipeline_store.stores import any_store, cloud_storage
from tpu_lifecycle.records.attempts import AttemptRecord, load_attempt
from tpu_lifecycle.records.installation import establish

__all__ = ["any_store", "cloud_storage"]


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    store = StoreLayout(str(tmp_path / "store"))
    situations.reaper_passed(store, hours_ago=0)
    return store


def report_failure(store: StoreLayout, run: RunLayout, cleared: int = 0) -> None:
    """Raise what Airflow's callback for a failed task raises."""
    record = record_of(run)
    raise_about_run(
        store,
        AlertedRun(record.dag_id, record.run_id, times_cleared=cleared),
        Cause.TASK_FAILED,
        detail="tpu.train",
        summary="task tpu.train failed",
        reason="it broke",
    )


def test_a_run_under_way_is_no_news(store: StoreLayout) -> None:
    new_run(store)
    report = look(store)
    assert report.raised == []
    assert report.problems == []
    assert report.open_runs == 1


@pytest.mark.parametrize(
    ("state", "said"),
    [("success", "ended as 'success'"), ("failed", "ended as 'failed'"), (None, "was deleted")],
)
def test_a_run_that_ended_without_an_outcome_is_told_and_recorded(
    store: StoreLayout, state: str | None, said: str
) -> None:
    run = new_run(store)
    alert = only(look(store, state))
    assert alert.cause == "ended-without-outcome"
    assert alert.scope == record_of(run).run_key
    assert said in alert.reason
    assert alert.title == "[repretraining] Test.DAG 2026-01-01: ended by a person or a crash"
    assert alert.link == situations.link_of(alert.dag_id or "", alert.run_id or "")
    outcome = RunOutcome.load(run.outcome)
    assert outcome.outcome is OutcomeKind.CANCELLED
    assert outcome.written_by == WRITER
    assert list_runs(store).all == []
    assert look(store, state).raised == []


def test_a_failure_that_was_told_is_not_told_again_when_the_run_has_ended(
    store: StoreLayout,
) -> None:
    run = new_run(store)
    report_failure(store, run)
    assert look(store, "failed").raised == []
    outcome = RunOutcome.load(run.outcome)
    assert (outcome.outcome, outcome.reason) == (OutcomeKind.FAILED, "it broke")


def test_the_reason_of_an_earlier_failure_is_not_that_of_the_next(store: StoreLayout) -> None:
    run = new_run(store)
    report_failure(store, run)
    for state in ("failed", "running"):
        look(store, state)
    uris.delete(run.outcome)
    look(store, "failed", cleared=1)
    assert "it broke" not in RunOutcome.load(run.outcome).reason


def test_a_damaged_alert_costs_the_reason_only(store: StoreLayout) -> None:
    run = new_run(store)
    report_failure(store, run)
    uris.write(store.alert(record_of(run).run_key, "task-failed.tpu.train"), b"{")
    look(store, "failed")
    outcome = RunOutcome.load(run.outcome)
    assert outcome.outcome is OutcomeKind.FAILED
    assert "its alerts say why" in outcome.reason


@pytest.mark.parametrize("state", ["success", "failed", None])
def test_a_run_whose_own_version_is_in_use_was_promoted(
    store: StoreLayout, state: str | None
) -> None:
    run = new_run(store)
    version_id = situations.put_into_use(store, record_of(run))
    report = look(store, state)
    assert (report.raised, report.problems) == ([], [])
    outcome = RunOutcome.load(run.outcome)
    assert outcome.outcome is OutcomeKind.PROMOTED
    assert (outcome.version_id, outcome.written_by) == (version_id, WRITER)
    assert list_runs(store).all == []


def test_a_run_beside_the_one_whose_version_is_in_use_was_not_promoted(store: StoreLayout) -> None:
    situations.put_into_use(store, record_of(new_run(store)))
    other = new_run(store)
    ended = {record_of(other).run_id: "failed"}
    look(store, lambda _dag_id, run_id: ended.get(run_id, "running"))
    assert RunOutcome.load(other.outcome).outcome is OutcomeKind.CANCELLED


def test_a_failure_that_only_the_outcome_tells_is_told(store: StoreLayout) -> None:
    run = new_run(store)
    outcomes.record(run, OutcomeKind.FAILED, "it ended without a verdict", written_by="release")
    # A person may have cleared it: while Airflow says that it goes on nothing is said.
    assert look(store, "running").raised == []
    alert = only(look(store, "failed"))
    assert alert.cause == "run-failed"
    assert "it ended without a verdict" in alert.reason
    assert look(store).open_runs == 0


def test_a_run_that_went_on_and_ended_again_is_told_again(store: StoreLayout) -> None:
    run = new_run(store)
    report_failure(store, run)
    assert look(store, "failed").raised == []
    outcomes.reopen(run)
    assert causes(look(store, "running", cleared=1)) == []
    assert causes(look(store, "failed", cleared=1)) == ["ended-without-outcome.cleared-1"]


def test_a_run_that_fails_again_between_two_looks_is_told_again(store: StoreLayout) -> None:
    run = new_run(store)
    report_failure(store, run)
    assert look(store, "failed").raised == []
    outcomes.reopen(run)
    assert causes(look(store, "failed", cleared=1)) == ["ended-without-outcome.cleared-1"]
    assert look(store, "failed", cleared=1).raised == []
    # A task of it may have written how it ended.
    outcomes.reopen(run)
    outcomes.record(run, OutcomeKind.FAILED, "it broke again", written_by="release")
    assert causes(look(store, "failed", cleared=2)) == ["run-failed.cleared-2"]
    assert look(store, "failed", cleared=2).raised == []


def test_a_run_that_airflow_has_deleted_since_ended_as_alerts_know(store: StoreLayout) -> None:
    run = new_run(store)
    report_failure(store, run, cleared=3)
    assert look(store, None, cleared=None).raised == []
    assert RunOutcome.load(run.outcome).outcome is OutcomeKind.FAILED


def test_a_run_that_is_rejected_again_is_told_again(store: StoreLayout) -> None:
    run = new_run(store)
    situations.rejected(run)
    assert causes(look(store)) == ["rejected"]
    outcomes.reopen(run)
    outcomes.record(run, OutcomeKind.REJECTED, "worse again", written_by="judge")
    assert causes(look(store, cleared=1)) == ["rejected.cleared-1"]


def test_a_rejection_is_told_with_its_reason(store: StoreLayout) -> None:
    situations.rejected(new_run(store), "worse by 1.0 nats")
    alert = only(look(store))
    assert alert.title == "[repretraining] Test.DAG 2026-01-01: candidate rejected: worse"
    assert "worse by 1.0 nats" in alert.reason
    assert look(store).raised == []


@pytest.mark.parametrize("kind", [OutcomeKind.PROMOTED, OutcomeKind.SKIPPED])
def test_good_news_is_no_alert(store: StoreLayout, kind: OutcomeKind) -> None:
    outcomes.record(new_run(store), kind, "as it should be", written_by="promote")
    assert look(store).raised == []
    assert look(store).open_runs == 0


def test_a_question_is_told_once_with_the_page_to_answer_at(store: StoreLayout) -> None:
    run = new_run(store)
    question = situations.asked(run)
    alert = only(look(store))
    assert alert.cause.startswith("approval-waiting.")
    until = f"{question.deadline:%F %H:%M} UTC"
    assert alert.title.endswith(f": waits for an approval until {until}")
    assert alert.link == situations.answer_link_of(alert.dag_id or "", alert.run_id or "")
    assert look(store).raised == []
    assert not uris.exists(run.outcome)


def test_a_question_that_is_asked_anew_is_told_anew(store: StoreLayout) -> None:
    run = new_run(store)
    situations.asked(run, minutes_ago=60)
    assert len(look(store).raised) == 1
    situations.asked(run)
    assert len(look(store).raised) == 1


@pytest.mark.parametrize("answer", [a for a in Answer if a is not Answer.WAITING])
def test_a_question_that_was_answered_is_no_news(store: StoreLayout, answer: Answer) -> None:
    run = new_run(store)
    question = situations.asked(run)
    question.model_copy(update={"answer": answer}).write(run.approval)
    assert look(store).raised == []


def test_a_question_whose_time_is_over_is_no_news(store: StoreLayout) -> None:
    situations.asked(new_run(store), minutes_ago=61, hours=1)
    assert look(store).raised == []


def test_a_question_of_a_run_that_has_ended_is_no_news(store: StoreLayout) -> None:
    run = new_run(store)
    situations.asked(run)
    outcomes.record(run, OutcomeKind.REJECTED, "Ada rejected it", written_by="approve")
    assert causes(look(store)) == ["rejected"]


def test_an_overdue_run_is_told(store: StoreLayout) -> None:
    situations.began(new_run(store), hours_ago=31)
    alert = only(look(store))
    assert alert.cause == "overdue"
    assert "REPRETRAIN_OVERDUE_HOURS=30" in alert.reason


def test_used_up_hours_are_told(store: StoreLayout) -> None:
    run = new_run(store, {"budget.max_hours": 10.0})
    reservation = situations.reserved(store, run)
    situations.reserved_for(reservation, hours=7.9)
    assert look(store).raised == []
    situations.reserved_for(reservation, hours=8.1)
    alert = only(look(store))
    assert alert.cause == "budget-hours"
    assert "budget.max_hours=10" in alert.reason
    assert alert.title.endswith("81% of budget.max_hours used")


def test_budgets_of_a_reservation_that_was_given_back_are_no_news(store: StoreLayout) -> None:
    reservation = situations.reserved(store, new_run(store, {"budget.max_hours": 10.0}))
    situations.reserved_for(reservation, hours=9.0)
    reservation.release("test")
    assert look(store).raised == []


def test_used_up_chip_hours_are_told_with_money_and_tpu(store: StoreLayout) -> None:
    settings = {"budget.max_chip_hours": 10.0, "budget.price_per_chip_hour": 2.0}
    run = new_run(store, settings)
    reservation = situations.reserved(store, run)
    chips = reservation.config.tpu.accelerator_type
    assert chips == "v5litepod-1"
    situations.rent(reservation, 1, hours=8.5)
    alert = only(look(store))
    assert alert.cause == "budget-chip-hours"
    assert alert.spent is not None
    assert alert.spent.chip_hours == pytest.approx(8.5, abs=0.1)
    assert alert.spent.cost == pytest.approx(17.0, abs=0.2)
    [tpu] = alert.tpus
    assert tpu.state == "READY, rented"


def test_lost_tpus_are_told_by_budget_and_as_a_storm(store: StoreLayout) -> None:
    reservation = situations.reserved(store, new_run(store, {"budget.max_preemptions": 4}))
    situations.lose(reservation, 2)
    assert look(store).raised == []
    situations.lose(reservation, 1, first=3)
    assert causes(look(store)) == ["preemption-storm"]
    situations.lose(reservation, 1, first=4)
    assert causes(look(store)) == ["budget-preemptions"]


def test_each_hang_of_a_job_is_told_with_where_it_was(store: StoreLayout) -> None:
    reservation = situations.reserved(store, new_run(store))
    situations.rent(reservation, 1, hours=1)
    mailbox = situations.hang(reservation, 1, hang_number=1)
    alert = only(look(store))
    assert alert.title.endswith("010-train hung in phase save after step 7")
    assert "nothing moved for 31 s in phase save of 010-train; last: step 7" in alert.reason
    assert "worker 0 in save, at call (a.py:1), called from ours (b.py:2)" in alert.reason
    assert "worker 1 in meeting, without an answer" in alert.reason
    assert mailbox.hang("010-train", 1, 0) in alert.reason
    assert look(store).raised == []
    situations.hang(reservation, 1, hang_number=2)
    assert base_cause(only(look(store)).cause) is Cause.JOB_HUNG


def test_what_happens_to_a_further_tpu_is_told_of_its_run(store: StoreLayout) -> None:
    run = new_run(store, {"budget.max_preemptions": 2})
    [_, rental, _] = make_rentals(store, run, 3)
    situations.began(rental, hours_ago=100)
    situations.lose(situations.reserved(store, rental), 2)
    report = look(store)
    # That it takes long is told of the run, which has just begun.
    assert causes(report) == ["budget-preemptions.tpu1"]
    [alert] = report.raised
    assert alert.title.endswith("100% of budget.max_preemptions used by TPU 1")
    assert alert.scope == record_of(run).run_key
    assert alert.run_id == record_of(run).run_id
    assert alert.spent is not None
    assert look(store).raised == []


def test_each_tpu_of_a_run_is_told_by_itself(store: StoreLayout) -> None:
    run = new_run(store, {"budget.max_preemptions": 1})
    folders = make_rentals(store, run, 3)
    for folder in folders[:2]:
        situations.lose(situations.reserved(store, folder), 1)
    assert causes(look(store)) == ["budget-preemptions", "budget-preemptions.tpu1"]
    situations.lose(situations.reserved(store, folders[2]), 1)
    # It is the third TPU that this run, and no other, has lost.
    assert causes(look(store)) == ["budget-preemptions.tpu2", "preemption-storm"]
    assert look(store).raised == []


def test_the_folder_of_a_further_tpu_ends_with_its_run(store: StoreLayout) -> None:
    run = new_run(store)
    [_, rental] = make_rentals(store, run, 2)
    report = look(store, "failed")
    # Once, of the run.
    assert [alert.scope for alert in report.raised] == [record_of(run).run_key]
    assert look(store, "failed").raised == []
    ended = RunOutcome.load(rental.outcome)
    assert ended.outcome is RunOutcome.load(run.outcome).outcome is OutcomeKind.CANCELLED
    assert list_runs(store).all == []


def test_runs_that_lose_tpus_together_are_told_once(store: StoreLayout) -> None:
    for count in (2, 1):
        situations.lose(situations.reserved(store, new_run(store)), count)
    alert = only(look(store))
    assert alert.cause == "preemption-storm"
    assert alert.run_id is None
    assert look(store).raised == []


def test_a_tpu_that_is_long_asked_for_in_vain_is_told_once_for_each_search(
    store: StoreLayout,
) -> None:
    run = new_run(store)
    reservation = situations.reserved(store, run)

    def asked(number: int, hours_ago: float) -> AttemptRecord:
        known = load_attempt(reservation.layout, number)
        record = known or reservation.new_attempt(number, "us-central1-a")
        created = datetime.now(UTC) - timedelta(hours=hours_ago)
        record.attempt.model_copy(update={"created": created}).write(record.layout.record)
        return record

    asked(1, 0.9).mark(AttemptEvent.REFUSED, "none left")
    asked(2, 0.1)
    assert look(store).raised == []
    asked(1, 1.1)
    alert = only(look(store))
    assert alert.cause == "no-tpu.tpu0-g1-a1"
    assert "2 times since" in alert.reason
    assert "none left" in alert.reason
    asked(3, 0.05).mark(AttemptEvent.READY, workers=1)
    assert look(store).raised == []
    reservation.attempt(3).mark(AttemptEvent.LOST, "taken", cause="taken")
    asked(4, 1.2)
    assert causes(look(store)) == ["no-tpu.tpu0-g1-a4"]


def test_a_silent_reaper_is_told_once_for_each_silence(store: StoreLayout) -> None:
    situations.watched_for(store, hours=5)
    situations.reaper_passed(store, hours_ago=2)
    alert = only(look(store))
    assert alert.cause == "reaper-silent"
    assert "tpu_reaper" in alert.reason
    assert look(store).raised == []
    situations.reaper_passed(store, hours_ago=1.5)
    assert causes(look(store)) == ["reaper-silent"]


def test_a_store_with_a_new_identity_is_told_once(store: StoreLayout, tmp_path: Path) -> None:
    establish(store)
    assert look(store).raised == []
    moved = StoreLayout(str(tmp_path / "moved"))
    shutil.copytree(store.root, moved.root)
    alert = only(look(moved))
    assert alert.cause == "new-identity"
    assert f"asked for before from {store.root}" in alert.reason
    establish(moved)
    assert look(moved).raised == []


def test_a_reaper_that_never_ran_is_told_when_it_has_had_its_turn(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    assert look(store).raised == []
    situations.watched_for(store, hours=2)
    assert causes(look(store)) == ["reaper-silent"]


def test_silence_while_nothing_ran_is_not_held_against_the_reaper(store: StoreLayout) -> None:
    situations.watched_for(store, hours=5)
    last = WatchPass.load(store.watch_pass)
    earlier = last.model_copy(update={"finished": datetime.now(UTC) - timedelta(hours=3)})
    earlier.write(store.watch_pass)
    situations.reaper_passed(store, hours_ago=3)
    assert look(store).raised == []


def test_a_quiet_corpus_is_told_until_something_arrives(store: StoreLayout) -> None:
    situations.corpus_was_quiet_for(store, days=4)
    assert only(look(store)).cause == "nothing-new"
    assert look(store).raised == []


def test_a_new_partition_ends_the_quiet(store: StoreLayout) -> None:
    situations.corpus_was_quiet_for(store, days=4)
    uris.write(uris.join(store.root, "corpus/2025-12-31/late.txt"), b"text")
    assert look(store).raised == []


def test_quiet_is_not_told_when_nobody_wants_to_know(store: StoreLayout) -> None:
    situations.corpus_was_quiet_for(store, days=400)
    assert look(store, quiet=timedelta(0)).raised == []


def test_one_damaged_run_hides_no_other(store: StoreLayout) -> None:
    broken, ended = new_run(store), new_run(store)
    uris.write(broken.record, b"{")
    key = record_of(ended).run_key
    report = look(store, "failed")
    assert [alert.scope for alert in report.raised] == [key]
    [problem] = report.problems
    assert broken.record in problem
    assert WatchPass.load(store.watch_pass).problems == report.problems


def test_a_question_that_airflow_does_not_answer_ends_no_run(store: StoreLayout) -> None:
    run = new_run(store)

    def away(_dag_id: str, _run_id: str) -> str:
        raise ConnectionError("the API server is away")

    report = look(store, away)
    assert report.raised == []
    assert "is away" in report.problems[0]
    assert not uris.exists(run.outcome)


def test_a_watch_that_dies_after_the_alert_goes_on_where_it_was(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(store)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(outcomes, "record_if_none", die)
        with pytest.raises(KeyboardInterrupt):
            look(store, "failed")
    assert not uris.exists(run.outcome)
    assert look(store, "failed").raised == []
    assert uris.exists(run.outcome)


def test_closed_runs_are_not_read(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreLayout(any_store)
    situations.reaper_passed(store, hours_ago=0)
    for _ in range(20):
        outcomes.record(new_run(store), OutcomeKind.PROMOTED, "better", written_by="promote")
    assert look(store).open_runs == 20
    going_on = new_run(store)
    read: list[str] = []

    def noting(real: Callable[[str], Any]) -> Callable[[str], Any]:
        def noted(uri: str) -> Any:
            read.append(uri)
            return real(uri)

        return noted

    for name in ("read", "read_or_none", "read_versioned"):
        monkeypatch.setattr(uris, name, noting(getattr(uris, name)))
    assert look(store).open_runs == 1
    of_runs = {uri for uri in read if uri.startswith(store.runs)}
    assert of_runs
    assert all(uri.startswith(going_on.root) for uri in of_runs)


def test_what_ended_long_ago_is_not_told(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(store)
    situations.rejected(run)
    monkeypatch.setattr("pipeline_alerts.listing.KEEP_TRYING", timedelta(seconds=-1))
    assert look(store).raised == []
    assert WatchedRun.load_or_none(store.watched_run(record_of(run).run_key)) is None
