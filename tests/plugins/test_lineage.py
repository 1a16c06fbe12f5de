"""Claiming a lineage, waiting for it in a trigger, and giving it back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    ErrorType,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetDagRun
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from hooks.dag_runs import end_of, failed_tasks, is_under_way
from hooks.notes import ENDED_BY, FIRST_TASK, NOTE
from model_registry import lease, outcomes, registry
from operators.failures import PipelineFailure, RunHasFailed
from operators.lineage import ClaimLineageOperator, ReleaseLineageOperator
from pipeline_alerts.causes import Cause, Remedy
from pipeline_alerts.delivery import list_alerts
from pipeline_alerts.raising import AlertedRun, raise_about_run
from pipeline_config import with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    Alert,
    BackfillRuns,
    OutcomeKind,
    RunOutcome,
    RunRecord,
    WaitingTicket,
)
from tests.model_registry.runs import CONFIG, NOW, FinishedRun
from tests.plugins.contexts import of_finished
from tests.plugins.driver import first_event, from_wire
from tests.plugins.lineages import hold
from triggers import lineage, threads
from triggers.lineage import MAX_ERRORS, LineageTrigger
from triggers.threads import PatientThreads

POLL = 0.5


class Airflow:
    """What Airflow answers about DAG runs: a state by run id, an error, or nothing."""

    def __init__(self) -> None:
        self.states: dict[str, str | int] = {}
        self.tasks: dict[str, str] | int = {}

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        answer = self.states.get(run_id, "running")
        if isinstance(answer, int):
            raise _error(answer)
        return answer

    def get_task_states(self, dag_id: str, run_ids: list[str]) -> dict[str, Any]:
        if isinstance(self.tasks, int):
            raise _error(self.tasks)
        return {run_ids[0]: self.tasks}


def _error(status: int) -> AirflowRuntimeError:
    detail = {"status_code": status, "message": "no"}
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    answers = Airflow()
    for name in ("get_dagrun_state", "get_task_states"):
        monkeypatch.setattr(RuntimeTaskInstance, name, staticmethod(getattr(answers, name)))
    return answers


def a_run(folder: Path, name: str, **settings: Any) -> FinishedRun:
    run = FinishedRun(str(folder), name)
    uris.delete(run.run.plan)
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    config = with_overrides(CONFIG, {"tpu.poll_interval": POLL} | dotted)
    uris.write(run.run.config, config.to_bytes())
    return run


@pytest.fixture
def first(tmp_path: Path, airflow: Airflow) -> FinishedRun:
    return a_run(tmp_path, "1")


@pytest.fixture
def second(tmp_path: Path, airflow: Airflow) -> FinishedRun:
    return a_run(tmp_path, "2")


def claiming(run: FinishedRun) -> ClaimLineageOperator:
    return ClaimLineageOperator(task_id="claim", store_uri=run.store.root)


def claim(run: FinishedRun) -> Any:
    return claiming(run).execute(of_finished(run))


def wait(run: FinishedRun) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        claim(run)
    return deferred.value


def resume(run: FinishedRun, event: dict[str, Any]) -> Any:
    return claiming(run).resume_execution("claimed", {"event": event}, of_finished(run))


def release(run: FinishedRun, **more: Any) -> str:
    """Return how the run ended, whether or not the task fails with it."""
    operator = ReleaseLineageOperator(task_id="release", store_uri=run.store.root)
    context = of_finished(run, **more)
    try:
        return operator.execute(context)
    except RunHasFailed:
        return str(RunOutcome.load(run.run.outcome).outcome)
    finally:
        NOTES[run.name] = context["pushed"].get(NOTE)


NOTES: dict[str, Any] = {}
"""By run, the note that its release has left."""


def held_by(run: FinishedRun) -> str | None:
    found = lease.holder(run.lineage)
    return found.run_key if found else None


def fire(deferred: TaskDeferred, act: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Run a trigger as the triggerer does until it fires, and act after its first look."""

    async def both() -> dict[str, Any]:
        trigger = from_wire(deferred.trigger)
        looked, attempt = asyncio.Event(), trigger._look

        def look() -> Any:
            try:
                return attempt()
            finally:
                loop.call_soon_threadsafe(looked.set)

        loop = asyncio.get_running_loop()
        trigger._look = look
        event = asyncio.create_task(first_event(trigger))
        await looked.wait()
        await asyncio.to_thread(act)
        return await event

    return asyncio.run(both())


def test_a_free_lineage_is_claimed_at_once(first: FinishedRun) -> None:
    assert claim(first) == 1
    assert held_by(first) == first.key


def test_a_claim_lasts_as_long_as_the_run_may_take(first: FinishedRun) -> None:
    claim(first)
    found = lease.require_held(first.lineage, first.key)
    least = timedelta(hours=CONFIG.budget.max_hours) + lease.SPARE
    assert found.expires - datetime.now(UTC) > least


def test_a_run_waits_deferred_until_the_other_has_ended(
    first: FinishedRun, second: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(first)
    deferred = wait(second)
    assert deferred.timeout is not None
    assert deferred.kwargs is None
    output = capsys.readouterr().out
    assert "the lineage is held by run day-1 of dag, partition day-1" in output
    assert "Waiting, at most until" in output
    event = fire(deferred, lambda: release(first))
    assert event["outcome"] == "claimed"
    assert held_by(first) == second.key
    assert resume(second, event) > 1
    assert lease.waiting(first.lineage) == []


def test_the_trigger_survives_the_wire(second: FinishedRun) -> None:
    trigger = LineageTrigger(
        store_uri=second.store.root, run_uri=second.run.root, deadline=1.5, poll_interval=POLL
    )
    again = from_wire(trigger)
    assert again.serialize() == trigger.serialize()
    assert isinstance(again, LineageTrigger)


def test_a_deferral_ends_well_after_its_triggers_own_deadline(
    first: FinishedRun, tmp_path: Path
) -> None:
    claim(first)
    deferred = wait(a_run(tmp_path, "2", budget__max_lineage_wait_hours=2.0))
    assert deferred.timeout is not None
    deadline = datetime.fromtimestamp(deferred.trigger.deadline, UTC)
    left = deadline - datetime.now(UTC)
    assert timedelta(hours=1.9) < left < timedelta(hours=2)
    assert deferred.timeout > left + timedelta(seconds=30)


def test_the_wait_has_an_end(first: FinishedRun, tmp_path: Path) -> None:
    claim(first)
    second = a_run(tmp_path, "2", budget__max_lineage_wait_hours=0.5 / 3600)
    deferred = wait(second)
    event = fire(deferred)
    assert event["outcome"] == "deadline"
    with pytest.raises(PipelineFailure, match=r"max_lineage_wait_hours.*held by run day-1") as over:
        resume(second, event)
    assert lease.waiting(first.lineage) == []
    assert held_by(first) == first.key
    # As the alert advises: look at who has it, and clear the task.
    assert over.value.remedy is Remedy.CLEAR
    release(first)
    claim(second)
    assert held_by(second) == second.key


def test_a_retry_does_not_begin_to_wait_anew(first: FinishedRun, second: FinishedRun) -> None:
    claim(first)
    before = wait(second).trigger.deadline
    uri = second.lineage.ticket(second.key)
    ticket = WaitingTicket.load(uri)
    earlier = ticket.since - timedelta(hours=1)
    ticket.model_copy(update={"since": earlier}).write(uri)
    assert wait(second).trigger.deadline == pytest.approx(before - 3600)
    too_early = ticket.since - timedelta(hours=CONFIG.budget.max_lineage_wait_hours)
    ticket.model_copy(update={"since": too_early}).write(uri)
    with pytest.raises(AirflowFailException, match="max_lineage_wait_hours"):
        claim(second)


@pytest.mark.parametrize("answer", ["success", "failed", "queued", 404])
def test_a_run_that_is_not_under_way_holds_nothing(
    first: FinishedRun, second: FinishedRun, airflow: Airflow, answer: str | int
) -> None:
    claim(first)
    wait(second)
    airflow.states["day-1"] = answer
    claim(second)
    assert held_by(first) == second.key


@pytest.mark.parametrize("answer", ["running", 500, 401])
def test_a_run_holds_the_lineage_while_nobody_says_that_it_has_ended(
    first: FinishedRun, second: FinishedRun, airflow: Airflow, answer: str | int
) -> None:
    claim(first)
    airflow.states["day-1"] = answer
    wait(second)
    assert held_by(first) == first.key


def test_the_trigger_takes_over_from_a_run_that_ends_without_a_word(
    first: FinishedRun, second: FinishedRun, airflow: Airflow
) -> None:
    claim(first)
    event = fire(wait(second), lambda: airflow.states.update({"day-1": "failed"}))
    assert event["outcome"] == "claimed"
    assert held_by(first) == second.key


def test_whoever_waits_for_a_smaller_partition_comes_first(
    first: FinishedRun, second: FinishedRun, tmp_path: Path
) -> None:
    third = a_run(tmp_path, "3")
    claim(second)
    waiting = wait(third)
    wait(first)
    release(second)
    wait(third)
    assert fire(waiting, lambda: (claim(first), release(first)))["outcome"] == "claimed"
    assert held_by(first) == third.key


def test_a_person_who_ends_the_wait_leaves_no_ticket(
    first: FinishedRun, second: FinishedRun
) -> None:
    claim(first)
    deferred = wait(second)
    assert len(lease.waiting(first.lineage)) == 1
    asyncio.run(from_wire(deferred.trigger).on_kill())
    assert lease.waiting(first.lineage) == []
    # While its process works, the operator itself is told.
    operator = claiming(second)
    with pytest.raises(TaskDeferred):
        operator.execute(of_finished(second))
    operator.on_kill()
    assert lease.waiting(first.lineage) == []


def test_the_end_of_an_old_try_does_not_take_the_lineage_from_the_new_one(
    first: FinishedRun, second: FinishedRun
) -> None:
    claim(first)
    old = wait(second)
    release(first)
    claim(second)
    asyncio.run(from_wire(old.trigger).on_kill())
    assert held_by(second) == second.key


def test_a_claim_that_is_cleared_finds_the_lineage_its_own(first: FinishedRun) -> None:
    sequence = claim(first)
    assert claim(first) > sequence
    assert held_by(first) == first.key


def test_a_lease_that_is_lost_before_the_task_goes_on_is_waited_for_again(
    first: FinishedRun, second: FinishedRun
) -> None:
    claim(first)
    event = fire(wait(second), lambda: release(first))
    lease.break_lease(first.lineage, "test")
    hold(first)
    with pytest.raises(TaskDeferred):
        resume(second, event)


def test_a_deferral_that_times_out_asks_once_more(
    first: FinishedRun, second: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(first)
    wait(second)
    release(first)

    def time_out(self: Any, *arguments: Any) -> Any:
        raise TaskDeferralTimeout("test")

    monkeypatch.setattr(ClaimLineageOperator.__mro__[1], "resume_execution", time_out)
    assert claiming(second).resume_execution("claimed", None, of_finished(second))
    assert held_by(first) == second.key


def test_a_damaged_lease_fails_with_what_to_do(first: FinishedRun, second: FinishedRun) -> None:
    claim(first)
    deferred = wait(second)
    event = fire(deferred, lambda: uris.write(first.lineage.lease, b"{"))
    assert event["outcome"] == "error"
    assert "lease --break" in event["reason"]
    with pytest.raises(AirflowException, match="lease --break"):
        resume(second, event)
    with pytest.raises(AirflowFailException, match="lease --break"):
        claim(second)
    assert MAX_ERRORS > 1


def test_a_look_that_never_returns_does_not_outlive_the_deadline(
    first: FinishedRun, second: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(first)
    monkeypatch.setattr(threads, "LAST_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(threads, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(lineage, "_LOOKS", PatientThreads(2, "test-look"))
    returns = threading.Event()
    deferred = wait(second)
    stuck = [from_wire(deferred.trigger) for _ in range(4)]
    for trigger in stuck:
        trigger.poll_interval, trigger.deadline = 0.01, time.time() + 0.3
        monkeypatch.setattr(trigger, "_look", returns.wait)

    async def follow() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(first_event, stuck))

    try:
        for event in asyncio.run(asyncio.wait_for(follow(), 30)):
            assert (event["outcome"], "TimeoutError" in event["reason"]) == ("deadline", True)
        # Those that hang have not taken all threads.
        monkeypatch.setattr(threads, "LOOK_SECONDS", 30.0)
        release(first)
        assert asyncio.run(first_event(from_wire(deferred.trigger)))["outcome"] == "claimed"
        asyncio.run(stuck[0].on_kill())
    finally:
        returns.set()


def test_a_store_that_is_away_is_waited_for(
    first: FinishedRun, second: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(first)
    deferred, looks = wait(second), 0
    read = uris.read_versioned

    def away(uri: str) -> Any:
        nonlocal looks
        looks += 1
        if looks <= MAX_ERRORS + 2:
            raise ConnectionError("away")
        return read(uri)

    trigger = from_wire(deferred.trigger)
    trigger.poll_interval = 0.01
    release(first)
    monkeypatch.setattr(uris, "read_versioned", away)
    assert asyncio.run(first_event(trigger))["outcome"] == "claimed"


def test_a_run_that_was_planned_from_another_model_stops_before_it_waits(
    first: FinishedRun, second: FinishedRun, tmp_path: Path
) -> None:
    registry.publish(_planned(first).store, first.run)
    registry.promote(first.lineage, first.version_id, expected_baseline=None, reason="better")
    _planned(second)
    hold(second)
    for _ in ("at first", "cleared, which cannot help"):
        with pytest.raises(PipelineFailure, match="trigger a new run") as stale:
            claim(second)
        assert stale.value.remedy is Remedy.NEW_RUN
        assert held_by(second) is None
    anew = a_run(tmp_path, "3")
    claim(anew)
    assert held_by(anew) == anew.key


def _planned(run: FinishedRun) -> FinishedRun:
    run.plan()
    return run


# --- release


def test_a_release_gives_the_lineage_back_and_says_what_failed(
    first: FinishedRun, airflow: Airflow
) -> None:
    claim(first)
    airflow.tasks = {"tpu.train": "failed", "tpu.evaluate": "upstream_failed", "claim": "success"}
    assert release(first) == "failed"
    assert held_by(first) is None
    found = RunOutcome.load(first.run.outcome)
    assert (found.outcome, found.reason) == (OutcomeKind.FAILED, "failed: tpu.train")


def test_a_release_says_why_a_task_failed_as_people_were_told(
    first: FinishedRun, airflow: Airflow
) -> None:
    claim(first)
    airflow.tasks = {"tpu.train": "failed"}
    run, why = AlertedRun("dag", first.name), "Task tpu.train, try 1: [budget] used up"
    raise_about_run(
        first.store, run, Cause.TASK_FAILED, summary="failed", reason=why, detail="tpu.train"
    )
    assert release(first) == "failed"
    assert RunOutcome.load(first.run.outcome).reason == f"failed: tpu.train. {why}"
    assert NOTES[first.name].startswith(f"Failed: tpu.train. {why}. Partition ")


@pytest.mark.parametrize("tasks", [{}, 500])
def test_a_release_needs_no_answer_of_airflow(
    first: FinishedRun, airflow: Airflow, tasks: dict[str, str] | int
) -> None:
    claim(first)
    airflow.tasks = tasks
    release(first)
    assert held_by(first) is None
    assert RunOutcome.load(first.run.outcome).reason == "it ended without a verdict"


@pytest.mark.parametrize("kind", OutcomeKind)
def test_what_a_task_has_said_stands(first: FinishedRun, kind: OutcomeKind) -> None:
    claim(first)
    said = outcomes.record(first.run, kind, "because", written_by="judge")
    assert release(first) == kind
    assert RunOutcome.load(first.run.outcome) == said


def test_a_promotion_that_died_before_it_could_say_so_is_no_failure(first: FinishedRun) -> None:
    claim(first)
    registry.publish(_planned(first).store, first.run)
    registry.promote(first.lineage, first.version_id, expected_baseline=None, reason="better")
    assert release(first) == "promoted"
    found = RunOutcome.load(first.run.outcome)
    assert (found.outcome, found.version_id) == (OutcomeKind.PROMOTED, first.version_id)


def test_a_release_runs_twice_and_never_takes_from_another(
    first: FinishedRun, second: FinishedRun
) -> None:
    claim(first)
    release(first)
    claim(second)
    before = RunOutcome.load(first.run.outcome)
    assert release(first) == "failed"
    assert held_by(first) == second.key
    assert RunOutcome.load(first.run.outcome) == before


def test_a_damaged_outcome_does_not_keep_the_lineage(first: FinishedRun) -> None:
    claim(first)
    uris.write(first.run.outcome, b"{")
    with pytest.raises(ValueError, match=r"outcome\.json"):
        release(first)
    assert held_by(first) is None


def test_a_failed_run_that_goes_on_has_no_outcome_until_it_ends(first: FinishedRun) -> None:
    claim(first)
    release(first)
    claim(first)
    assert not uris.exists(first.run.outcome)
    outcomes.record(first.run, OutcomeKind.PROMOTED, "better", written_by="promote")
    assert release(first) == "promoted"


@pytest.mark.parametrize("kind", OutcomeKind)
def test_the_last_task_ends_as_the_run_has(first: FinishedRun, kind: OutcomeKind) -> None:
    claim(first)
    outcomes.record(first.run, kind, "because", written_by="judge")
    operator = ReleaseLineageOperator(task_id="release", store_uri=first.store.root)
    fails = kind in (OutcomeKind.FAILED, OutcomeKind.CANCELLED)
    with pytest.raises(RunHasFailed, match="because") if fails else nullcontext():
        operator.execute(of_finished(first))
    assert held_by(first) is None


def test_a_note_says_how_the_run_ended_and_of_what_it_is(first: FinishedRun) -> None:
    claim(first)
    outcomes.record(first.run, OutcomeKind.REJECTED, "rejected: worse: by 0.1.", written_by="judge")
    release(first)
    assert NOTES[first.name] == "Rejected: worse: by 0.1. Partition day-1, lineage default"


def test_a_note_that_cannot_be_left_does_not_keep_the_lineage(first: FinishedRun) -> None:
    claim(first)
    outcomes.record(first.run, OutcomeKind.REJECTED, "because", written_by="judge")
    context = of_finished(first)
    context["ti"].xcom_push = context["ti"].xcom_pull = None
    operator = ReleaseLineageOperator(task_id="release", store_uri=first.store.root)
    assert operator.execute(context) == "rejected"
    assert held_by(first) is None


def test_one_alert_says_who_has_ended_a_run(
    first: FinishedRun, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_STORE_URI", first.store.root)
    claim(first)
    airflow.tasks = {"tpu.train": "failed"}
    for _ in range(2):
        assert release(first, left={(FIRST_TASK, ENDED_BY): {"name": "ada"}}) == "failed"
    assert "ended by ada in Airflow; failed: tpu.train" in NOTES[first.name]
    [uri] = list_alerts(first.store)
    alert = Alert.load(uri)
    assert alert.cause == "run-failed"
    assert "ended by ada" in alert.reason
    assert "Outcome: failed" in alert.reason


def test_of_a_run_whose_task_failed_the_last_task_tells_nothing(
    first: FinishedRun, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_STORE_URI", first.store.root)
    claim(first)
    airflow.tasks = {"tpu.train": "failed"}
    release(first)
    assert list_alerts(first.store) == []


# --- backfills


@pytest.fixture
def backfill(first: FinishedRun, second: FinishedRun) -> BackfillRuns:
    """The first two days, of which the second is ready to claim and the first has not begun."""
    days = {first.name: "day-1", second.name: "day-2"}
    listed = BackfillRuns(
        name="7-abc",
        dag_id="dag",
        backfill_id=7,
        lineage_id="default",
        runs=days,
        created=datetime.now(UTC),
    )
    listed.create(first.store.backfill(listed.name))
    for run in (first, second):
        record = RunRecord.load(run.run.record)
        record.model_copy(update={"backfill": listed.name}).write(run.run.record)
    return listed


def test_a_run_waits_for_an_older_partition_of_its_backfill_that_is_being_prepared(
    first: FinishedRun, second: FinishedRun, backfill: BackfillRuns, airflow: Airflow
) -> None:
    record = uris.read(first.run.record)
    uris.delete(first.run.record)  # validate has not even begun
    airflow.states["1"] = "running"
    deferred = wait(second)
    assert held_by(first) is None

    def older() -> None:
        uris.write(first.run.record, record)
        claim(first)
        release(first)

    assert fire(deferred, older)["outcome"] == "claimed"
    assert held_by(second) == second.key


@pytest.mark.parametrize("state", ["failed", "success", "queued", 404])
def test_a_run_does_not_wait_for_an_older_one_that_has_ended_or_not_begun(
    second: FinishedRun, backfill: BackfillRuns, airflow: Airflow, state: str | int
) -> None:
    # Queued: it waits for a place among the active runs, of which this one has one.
    airflow.states["1"] = state
    claim(second)
    assert held_by(second) == second.key


def test_in_a_backfill_that_runs_backwards_no_run_waits_for_one_that_is_being_prepared(
    second: FinishedRun, backfill: BackfillRuns, airflow: Airflow
) -> None:
    backwards = backfill.model_copy(update={"is_backwards": True})
    backwards.write(second.store.backfill(backfill.name))
    airflow.states["1"] = "running"
    claim(second)
    assert held_by(second) == second.key


def test_an_older_run_does_not_wait_for_a_newer_one(
    first: FinishedRun, backfill: BackfillRuns, airflow: Airflow
) -> None:
    airflow.states |= {"1": "running", "2": "running"}
    claim(first)
    assert held_by(first) == first.key


def test_a_run_waits_for_no_run_of_another_lineage_or_without_a_backfill(
    first: FinishedRun, second: FinishedRun, backfill: BackfillRuns, airflow: Airflow
) -> None:
    airflow.states["1"] = "running"
    record = RunRecord.load(first.run.record)
    record.model_copy(update={"lineage_id": "another"}).write(first.run.record)
    claim(second)
    release(second)
    record.write(first.run.record)
    own = RunRecord.load(second.run.record)
    own.model_copy(update={"backfill": None}).write(second.run.record)
    claim(second)


def test_airflow_must_say_that_an_older_run_has_ended(
    second: FinishedRun, backfill: BackfillRuns, airflow: Airflow
) -> None:
    airflow.states["1"] = 500
    wait(second)


# --- what Airflow says


def test_what_airflow_says_of_other_runs(airflow: Airflow) -> None:
    airflow.states = {"a": "running", "b": "failed", "c": 404, "d": 503}
    assert is_under_way("dag", "a")
    assert not is_under_way("dag", "b")
    assert not is_under_way("dag", "c")
    with pytest.raises(AirflowRuntimeError):
        is_under_way("dag", "d")
    airflow.tasks = {"b": "failed", "a": "failed", "c": "success"}
    assert failed_tasks("dag", "a") == ["a", "b"]


def test_when_a_run_has_ended_by_airflows_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: dict[str, Any] = {"a": NOW, "b": None}

    class Supervisor:
        def send(self, msg: GetDagRun) -> Any:
            if msg.run_id not in ends:
                raise _error(404 if msg.run_id == "c" else 503)
            return SimpleNamespace(end_date=ends[msg.run_id])

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(), raising=False)
    assert end_of("dag", "a") == NOW
    assert end_of("dag", "b") is None
    with pytest.raises(LookupError, match="knows no run c of dag"):
        end_of("dag", "c")
    with pytest.raises(AirflowRuntimeError):
        end_of("dag", "d")
