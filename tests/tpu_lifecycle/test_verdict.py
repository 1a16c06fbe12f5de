from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline_store.formats import AttemptEvent, AttemptMark, ExitKind, JobStatus, PhaseName
from tpu_lifecycle.control.verdict import Facts, Outcome, Standing, judge_job, judge_readiness
from tpu_lifecycle.records.attempts import BOOT_ADVICE, Loss
from tpu_lifecycle.service.backend import (
    TpuCapacityError,
    TpuInvalidRequestError,
    TpuName,
    TpuState,
)

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NAME = TpuName("us-central1-a", "bert-0a1b2c3d4e5f-g1-a1")
RUNNING = TpuState(NAME, queued_resource="ACTIVE", node="READY", health="HEALTHY", workers=4)


def status(worker: int, kind: ExitKind = ExitKind.OK, message: str = "") -> JobStatus:
    return JobStatus(
        worker=worker,
        token="t",  # noqa: S106
        job_id="010-train",
        exit_kind=kind,
        exit_code=kind.exit_code,
        restarts=0,
        message=message,
        started=NOW,
        finished=NOW,
        log_chunks=0,
    )


def facts(**changes: Any) -> Facts:
    """Four workers of a READY TPU, all heard of a second ago."""
    ready = AttemptMark(
        event=AttemptEvent.READY, time=NOW - timedelta(seconds=1000), reason="", workers=4
    )
    usual = Facts(
        now=NOW,
        deadline=NOW + timedelta(hours=1),
        tpu=RUNNING,
        ready=ready,
        hellos=frozenset(range(4)),
        silence=dict.fromkeys(range(4), 1.0),
    )
    return replace(usual, **changes)


def all_ok() -> dict[int, JobStatus]:
    return {worker: status(worker) for worker in range(4)}


def test_a_healthy_job_is_waited_for() -> None:
    assert judge_job(facts()).outcome is Outcome.WAITING


def test_the_job_succeeds_when_all_workers_have() -> None:
    three = {worker: status(worker) for worker in range(3)}
    assert judge_job(facts(statuses=three)).outcome is Outcome.WAITING
    assert judge_job(facts(statuses=all_ok())).outcome is Outcome.SUCCEEDED


def test_any_failed_worker_fails_the_job_with_its_name() -> None:
    verdict = judge_job(facts(statuses={2: status(2, ExitKind.BAD_DATA, "record 7 is damaged")}))
    assert verdict.outcome is Outcome.FAILED
    assert (verdict.worker, verdict.exit_kind) == (2, ExitKind.BAD_DATA)
    assert verdict.reason == "record 7 is damaged"


def test_a_worker_that_was_told_to_stop_means_a_lost_tpu() -> None:
    verdict = judge_job(facts(statuses={1: status(1, ExitKind.PREEMPTED)}))
    assert verdict.outcome is Outcome.LOST
    assert "worker 1" in verdict.reason


def test_what_was_reported_counts_before_what_became_of_the_tpu() -> None:
    gone = TpuState(NAME)
    assert judge_job(facts(statuses=all_ok(), tpu=gone)).outcome is Outcome.SUCCEEDED
    failed = {0: status(0, ExitKind.USER_ERROR)}
    assert judge_job(facts(statuses=failed, tpu=gone)).outcome is Outcome.FAILED
    assert judge_job(facts(statuses={0: status(0)}, tpu=gone)).outcome is Outcome.LOST


@pytest.mark.parametrize("kind", [ExitKind.FAILED, ExitKind.KILLED])
@pytest.mark.parametrize("tpu", [TpuState(NAME), replace(RUNNING, node="PREEMPTED")])
def test_a_failure_that_the_loss_of_the_tpu_explains_is_a_loss(
    kind: ExitKind, tpu: TpuState
) -> None:
    failed = {1: status(1, kind)}
    verdict = judge_job(facts(statuses=failed, tpu=tpu))
    assert verdict.outcome is Outcome.LOST
    assert f"worker 1 ended with {kind}" in verdict.reason
    assert judge_job(facts(statuses=failed)).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "kind",
    [ExitKind.USER_ERROR, ExitKind.BAD_DATA, ExitKind.OUT_OF_MEMORY, ExitKind.DEADLINE],
)
def test_a_failure_of_the_jobs_own_stays_final_when_the_tpu_is_gone(kind: ExitKind) -> None:
    for tpu in (None, TpuState(NAME)):
        verdict = judge_job(facts(statuses={1: status(1, kind)}, tpu=tpu))
        assert (verdict.outcome, verdict.exit_kind) == (Outcome.FAILED, kind)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (TpuState(NAME), "no longer exists"),
        (replace(RUNNING, node=None), "node no longer exists"),
        (replace(RUNNING, node="PREEMPTED"), "PREEMPTED"),
        (replace(RUNNING, node="TERMINATED"), "TERMINATED"),
        (replace(RUNNING, node="STOPPED"), "STOPPED"),
        (replace(RUNNING, node="UNKNOWN"), "UNKNOWN"),
        (replace(RUNNING, node="HIDDEN"), "HIDDEN"),
        (replace(RUNNING, queued_resource="SUSPENDING", taken_by_service=True), "by the service"),
        (replace(RUNNING, queued_resource="SUSPENDED"), "SUSPENDED"),
        (replace(RUNNING, queued_resource="FAILED"), "FAILED"),
        (replace(RUNNING, queued_resource="DELETING", node="DELETING"), "DELETING"),
    ],
)
def test_every_sign_of_a_lost_tpu_is_seen(state: TpuState, reason: str) -> None:
    verdict = judge_job(facts(tpu=state))
    assert verdict.outcome is Outcome.LOST
    assert reason in verdict.reason


@pytest.mark.parametrize("node", ["REPAIRING", "RESTARTING", "REIMAGING", "STARTING"])
def test_a_node_that_may_come_back_is_waited_for(node: str) -> None:
    assert judge_job(facts(tpu=replace(RUNNING, node=node))).outcome is Outcome.WAITING


def test_a_silent_worker_is_lost_and_named() -> None:
    silence = {0: 1.0, 1: 1.0, 2: 301.0, 3: 1.0}
    verdict = judge_job(facts(silence=silence))
    assert verdict.outcome is Outcome.LOST
    assert "worker 2 gave no sign for 301 s" in verdict.reason
    # One that has finished need not give signs.
    assert judge_job(facts(silence=silence, statuses={2: status(2)})).outcome is Outcome.WAITING


def test_a_worker_that_never_reported_is_lost_and_named() -> None:
    verdict = judge_job(facts(hellos=frozenset({0, 1, 2}), boot_timeout=900.0))
    assert verdict.outcome is Outcome.LOST
    assert "worker 3 never reported within 900 s of READY" in verdict.reason
    assert judge_job(facts(hellos=frozenset(), boot_timeout=1001.0)).outcome is Outcome.WAITING


USED_UP = [
    ({"budget_end": NOW}, Outcome.BUDGET, "budget.max_chip_hours or budget.max_cost was used up"),
    ({"deadline": NOW}, Outcome.DEADLINE, "not done at"),
]


@pytest.mark.parametrize(("changes", "outcome", "said"), USED_UP)
def test_a_budget_that_ends_before_any_agent_reported_tells_what_to_check(
    changes: dict[str, Any], outcome: Outcome, said: str
) -> None:
    verdict = judge_job(facts(hellos=frozenset(), silence={}, **changes))
    assert verdict.outcome is outcome
    assert said in verdict.reason
    assert "none of the 4 workers ever reported" in verdict.reason
    assert BOOT_ADVICE in verdict.reason


@pytest.mark.parametrize(("changes", "outcome", "said"), USED_UP)
@pytest.mark.parametrize("seen", [{"hellos": frozenset({3})}, {"ready": None}, {"tpu": None}])
def test_a_budget_that_ends_otherwise_tells_no_more_than_that(
    changes: dict[str, Any], outcome: Outcome, said: str, seen: dict[str, Any]
) -> None:
    verdict = judge_job(facts(**{"hellos": frozenset(), "silence": {}} | seen | changes))
    assert verdict.outcome is outcome
    assert said in verdict.reason
    assert "reported" not in verdict.reason


def test_while_the_service_does_not_answer_nothing_is_concluded_from_silence() -> None:
    silent = {0: 10_000.0}
    assert judge_job(facts(tpu=None, silence=silent)).outcome is Outcome.WAITING
    assert judge_job(facts(tpu=None, hellos=frozenset())).outcome is Outcome.WAITING
    assert judge_job(facts(tpu=None, statuses=all_ok())).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("seconds", "changes", "outcome"),
    [
        (1299.0, {}, Outcome.WAITING),
        (1301.0, {}, Outcome.LOST),
        (1301.0, {"tpu": None}, Outcome.WAITING),
        (1301.0, {"statuses": {2: status(2)}}, Outcome.WAITING),
    ],
)
def test_a_job_that_its_agent_should_have_ended_long_ago_means_a_lost_tpu(
    seconds: float, changes: dict[str, Any], outcome: Outcome
) -> None:
    standing = {2: Standing(PhaseName.SAVE, seconds, 1000.0)}
    verdict = judge_job(facts(standing=standing, heartbeat_timeout=300.0, **changes))
    assert verdict.outcome is outcome
    if outcome is Outcome.LOST:
        assert "nothing moved on worker 2 for 1301 s in phase save" in verdict.reason
        assert verdict.cause == Loss.HUNG


def test_release_and_deadline_end_the_wait() -> None:
    assert judge_job(facts(released=True)).outcome is Outcome.RELEASED
    assert judge_job(facts(deadline=NOW)).outcome is Outcome.DEADLINE
    assert judge_job(facts(released=True, statuses=all_ok())).outcome is Outcome.SUCCEEDED


def waiting(**changes: Any) -> Facts:
    return replace(facts(ready=None, hellos=frozenset(), silence={}), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"queued_resource": "SUSPENDING", "node": "PREEMPTED", "taken_by_service": True},
        {"queued_resource": "SUSPENDED", "node": None, "taken_by_service": True},
        {"queued_resource": None, "node": "PREEMPTED"},
    ],
)
def test_what_is_taken_before_it_was_seen_ready_is_lost_and_not_refused(
    changes: dict[str, Any],
) -> None:
    verdict = judge_readiness(waiting(tpu=replace(RUNNING, **changes)))
    assert (verdict.outcome, verdict.cause) == (Outcome.LOST, Loss.TAKEN)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (TpuState(NAME, queued_resource="WAITING_FOR_RESOURCES"), Outcome.WAITING),
        (TpuState(NAME, queued_resource="ACCEPTED"), Outcome.WAITING),
        (TpuState(NAME, queued_resource="PROVISIONING", node="CREATING"), Outcome.WAITING),
        (RUNNING, Outcome.READY),
        (TpuState(NAME), Outcome.REFUSED),
        (TpuState(NAME, queued_resource="SUSPENDED"), Outcome.REFUSED),
        (None, Outcome.WAITING),
    ],
)
def test_readiness(state: TpuState | None, expected: Outcome) -> None:
    assert judge_readiness(waiting(tpu=state)).outcome is expected


def test_what_was_just_asked_for_need_not_be_visible_yet() -> None:
    absent = waiting(tpu=TpuState(NAME), asked=NOW - timedelta(seconds=59))
    assert judge_readiness(absent).outcome is Outcome.WAITING
    later = replace(absent, asked=NOW - timedelta(seconds=60))
    assert judge_readiness(later).outcome is Outcome.REFUSED
    failed = replace(absent, tpu=TpuState(NAME, queued_resource="FAILED"))
    assert judge_readiness(failed).outcome is Outcome.REFUSED


def test_a_refusal_says_whether_another_zone_may_help() -> None:
    failed = TpuState(NAME, queued_resource="FAILED")
    stockout = judge_readiness(waiting(tpu=replace(failed, fault=TpuCapacityError("no capacity"))))
    assert (stockout.outcome, stockout.retryable) == (Outcome.REFUSED, True)
    assert "no capacity" in stockout.reason
    wrong = judge_readiness(waiting(tpu=replace(failed, fault=TpuInvalidRequestError("bad"))))
    assert (wrong.outcome, wrong.retryable) == (Outcome.REFUSED, False)


def test_release_and_deadline_end_the_wait_for_ready() -> None:
    queued = TpuState(NAME, queued_resource="WAITING_FOR_RESOURCES")
    assert judge_readiness(waiting(tpu=queued, released=True)).outcome is Outcome.RELEASED
    assert judge_readiness(waiting(tpu=queued, deadline=NOW)).outcome is Outcome.DEADLINE
    # It may have come while nobody looked: what it is too late for, the service has to say.
    assert judge_readiness(waiting(tpu=None, deadline=NOW)).outcome is Outcome.WAITING
    assert judge_readiness(waiting(tpu=RUNNING, deadline=NOW)).outcome is Outcome.READY


@pytest.mark.parametrize("kind", [ExitKind.FAILED, ExitKind.KILLED])
def test_a_failure_beside_a_worker_that_was_told_to_stop_is_a_loss(kind: ExitKind) -> None:
    # The node still says READY for a moment.
    told = {0: status(0, kind), 1: status(1, ExitKind.PREEMPTED)}
    verdict = judge_job(facts(statuses=told))
    assert (verdict.outcome, verdict.cause) == (Outcome.LOST, Loss.TAKEN)
    assert "worker 1 was told to stop" in verdict.reason
    own = told | {2: status(2, ExitKind.BAD_DATA)}
    verdict = judge_job(facts(statuses=own))
    assert (verdict.outcome, verdict.worker) == (Outcome.FAILED, 2)


@pytest.mark.parametrize("kind", [ExitKind.FAILED, ExitKind.KILLED])
def test_whose_fault_a_failure_is_waits_for_the_services_word(kind: ExitKind) -> None:
    unanswered = facts(statuses={worker: status(worker, kind) for worker in range(4)}, tpu=None)
    assert judge_job(unanswered).outcome is Outcome.WAITING
    assert judge_job(replace(unanswered, deadline=NOW)).outcome is Outcome.FAILED
    assert judge_job(replace(unanswered, released=True)).outcome is Outcome.FAILED
