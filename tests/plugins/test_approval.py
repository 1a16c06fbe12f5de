"""A person is asked before a better candidate comes into use, and the answer is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    TaskAwaitingInput,
)

from model_registry import lease
from operators.approval import ApproveOperator, approval_given, missing_approval
from pipeline_config import PipelineConfig, parse_config, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    Answer,
    EvaluationReport,
    OutcomeKind,
    RunApproval,
    RunOutcome,
    RunPlan,
    RunRecord,
)
from tests.model_registry.runs import CONFIG, NOW, FinishedRun
from tests.plugins.contexts import of_finished

HOURS = 5.0


def dag_run(requester: str | None, run_type: str = "manual") -> Any:
    """Return a run of Airflow that somebody has started, or nobody."""
    return SimpleNamespace(
        dag_id="dag", run_id="1", triggering_user_name=requester, run_type=run_type
    )


class Candidate:
    """A finished run whose candidate won, and the task that asks about it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.finished = FinishedRun(str(folder), "1")
        self.run = self.finished.run
        self.asked: list[dict[str, Any]] = []
        monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **what: self.asked.append(what))
        self.configure(
            {
                "promotion.require_approval": True,
                "promotion.approval_timeout_hours": HOURS,
                **settings,
            }
        )
        plan = RunPlan.load(self.run.plan)
        plan.model_copy(update={"trained": plan.trained | {"extra": "elsewhere"}}).write(
            self.run.plan
        )
        self.acquire()

    def configure(self, settings: dict[str, Any]) -> None:
        uris.write(self.run.config, with_overrides(CONFIG, settings).to_bytes())

    @property
    def config(self) -> PipelineConfig:
        return parse_config(uris.read(self.run.config), self.run.config)

    def acquire(self) -> None:
        lease.acquire(
            self.finished.lineage,
            RunRecord.load(self.run.record),
            expires=datetime.now(UTC) + timedelta(minutes=1),
            poll_seconds=1,
            has_ended=lambda _: False,
        )

    def operator(self) -> ApproveOperator:
        return ApproveOperator(task_id="approve", store_uri=self.finished.store.root)

    def execute(self) -> Any:
        return self.operator().execute(self.context())

    def context(self) -> Any:
        return of_finished(self.finished)

    def ask(self) -> TaskAwaitingInput:
        """Execute until the task waits for a person."""
        with pytest.raises(TaskAwaitingInput) as waiting:
            self.execute()
        return waiting.value

    def answer(
        self, choice: str, *, user: str | None = "ada", number: str = "", comment: str = ""
    ) -> Any:
        """Go on as Airflow does with an answer; without a user it is the default's turn.

        :param number: the id that the auth manager has for the user, if that is not the name.
        """
        event = {
            "chosen_options": [choice],
            "params_input": {"comment": comment},
            "responded_at": NOW,
            "responded_by_user": {"id": number or user, "name": user} if user else None,
            "timedout": user is None,
        }
        return self.operator().execute_complete(self.context(), event)

    @property
    def stored(self) -> RunApproval:
        return RunApproval.load(self.run.approval)

    @property
    def outcome(self) -> RunOutcome | None:
        return RunOutcome.load_or_none(self.run.outcome)


@pytest.fixture
def candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Candidate:
    return Candidate(tmp_path, monkeypatch)


def test_nobody_is_asked_unless_it_is_required(candidate: Candidate) -> None:
    candidate.configure({})
    assert candidate.execute() is None
    assert candidate.asked == []
    assert not uris.exists(candidate.run.approval)


def test_nobody_is_asked_about_a_rejected_candidate(candidate: Candidate) -> None:
    candidate.finished.evaluate(baseline=None, gain=-0.5)
    with pytest.raises(AirflowSkipException, match="Nothing to approve: On 40 held-out"):
        candidate.execute()
    assert candidate.asked == []
    # How the run ended is what the gate wrote.
    assert candidate.outcome is None


def test_the_question_has_the_numbers(candidate: Candidate) -> None:
    waiting = candidate.ask()
    assert waiting.timeout == timedelta(hours=HOURS)
    assert waiting.method_name == "execute_complete"
    [question] = candidate.asked
    assert question["options"] == ["Approve", "Reject"]
    # What Airflow chooses when nobody answers.
    assert question["defaults"] == ["Reject"]
    body = question["body"]
    report = EvaluationReport.load(candidate.run.evaluation(None))
    [scores] = report.models[0].sets
    assert f"| 40 | {scores.loss:.4f} | 6.0000 |" in body
    assert "**The gate lets it pass**: On 40 held-out documents" in body
    assert "400 steps, 1,500,000 tokens" in body
    assert "extra" in body
    assert "/dags/dag/runs/" in body
    assert "/plugin/model" in body
    stored = candidate.stored
    assert (stored.answer, stored.answered_by) == (Answer.WAITING, None)
    assert stored.deadline - stored.asked == timedelta(hours=HOURS)


def test_the_lineage_is_kept_while_the_question_is_open(candidate: Candidate) -> None:
    candidate.ask()
    held = lease.require_held(candidate.finished.lineage, candidate.finished.key)
    assert held.expires > candidate.stored.deadline


def test_a_run_that_lost_the_lineage_does_not_ask(candidate: Candidate) -> None:
    lease.break_lease(candidate.finished.lineage, "a test")
    with pytest.raises(AirflowFailException, match="may not continue the lineage"):
        candidate.execute()
    assert candidate.asked == []


def test_an_approval_lets_the_run_go_on(candidate: Candidate) -> None:
    candidate.ask()
    assert missing_approval(candidate.run, candidate.config, None, "ada") is not None
    assert candidate.answer("Approve", comment="fine") == "ada"
    stored = candidate.stored
    assert (stored.answer, stored.answered_by, stored.comment) == (Answer.APPROVED, "ada", "fine")
    assert stored.answered == NOW
    assert candidate.outcome is None
    assert missing_approval(candidate.run, candidate.config, None, "ada") is None


def test_a_rejection_skips_what_follows_and_names_the_person(candidate: Candidate) -> None:
    candidate.ask()
    with pytest.raises(AirflowSkipException, match="ada rejected the candidate: too odd"):
        candidate.answer("Reject", comment="too odd")
    assert candidate.stored.answer is Answer.REJECTED
    outcome = candidate.outcome
    assert outcome is not None
    assert outcome.outcome is OutcomeKind.REJECTED
    assert "ada" in outcome.reason
    assert missing_approval(candidate.run, candidate.config, None, "ada") is not None


def test_no_answer_in_time_is_a_rejection(candidate: Candidate) -> None:
    candidate.ask()
    with pytest.raises(AirflowSkipException, match="Nobody answered by"):
        candidate.answer("Reject", user=None)
    assert candidate.stored.answer is Answer.UNANSWERED
    assert candidate.outcome is not None
    assert candidate.outcome.outcome is OutcomeKind.REJECTED


def test_what_nobody_chose_is_no_approval(candidate: Candidate) -> None:
    candidate.ask()
    with pytest.raises(AirflowSkipException):
        candidate.answer("Approve", user=None)
    assert approval_given(candidate.run, None) is None


def test_a_task_that_runs_again_does_not_ask_twice(candidate: Candidate) -> None:
    candidate.ask()
    candidate.answer("Approve")
    assert candidate.execute() == "ada"
    assert len(candidate.asked) == 1


def test_a_rejected_candidate_is_asked_about_again_when_the_task_is_cleared(
    candidate: Candidate,
) -> None:
    candidate.ask()
    with pytest.raises(AirflowSkipException):
        candidate.answer("Reject")
    candidate.ask()
    assert candidate.stored.answer is Answer.WAITING
    assert candidate.answer("Approve", user="grace") == "grace"


def test_an_approval_is_of_one_candidate_and_one_comparison(candidate: Candidate) -> None:
    candidate.ask()
    candidate.answer("Approve")
    other = candidate.stored.model_copy(update={"candidate_sha256": "3" * 64})
    other.write(candidate.run.approval)
    assert approval_given(candidate.run, None) is None
    other.model_copy(update={"candidate_sha256": "2" * 64, "baseline": "v-000000000000"}).write(
        candidate.run.approval
    )
    assert approval_given(candidate.run, None) is None


def test_an_approval_is_only_missed_where_it_is_required(candidate: Candidate) -> None:
    assert missing_approval(candidate.run, CONFIG, None, dag_run("ada")) is None


APPROVERS = {"promotion.approvers": ["ada", "grace"]}


def test_approvers_are_asked_though_the_request_wants_nobody_to_be(candidate: Candidate) -> None:
    candidate.configure(APPROVERS | {"promotion.require_approval": False})
    operator = candidate.operator()
    with pytest.raises(TaskAwaitingInput):
        operator.execute(candidate.context())
    # Not ada, who triggered the run.
    assert operator.assigned_users == [{"id": "grace", "name": "grace"}]


def test_without_another_approver_nobody_is_asked_as_airflow_would_ask_everybody(
    candidate: Candidate,
) -> None:
    candidate.configure({"promotion.approvers": ["ada"]})
    with pytest.raises(AirflowFailException, match="only 'ada' is named, who triggered this run"):
        candidate.execute()
    assert candidate.asked == []


@pytest.mark.parametrize(
    ("user", "requester", "run_type", "reason"),
    [
        ("mallory", "ada", "manual", "'mallory', who is not among promotion.approvers"),
        ("ada", "ada", "manual", "'ada', who triggered this run"),
        ("ada", "ada", "operator_triggered", "'ada', who triggered this run"),
        ("grace", "ada", "backfill", None),
        ("ada", None, "scheduled", None),
        ("ada", None, "operator_triggered", None),
    ],
)
def test_whoever_promotes_looks_again_at_who_has_answered(
    candidate: Candidate, user: str, requester: str | None, run_type: str, reason: str | None
) -> None:
    candidate.configure(APPROVERS)
    candidate.ask()
    candidate.answer("Approve", user=user)
    run = dag_run(requester, run_type)
    found = missing_approval(candidate.run, candidate.config, None, run)
    assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize(("user", "is_fit"), [("grace", True), ("ada", False), ("mallory", False)])
def test_a_team_servers_approvers_are_login_names(
    candidate: Candidate, user: str, *, is_fit: bool
) -> None:
    candidate.configure(APPROVERS)
    candidate.ask()
    candidate.answer("Approve", user=user, number="7")
    found = missing_approval(candidate.run, candidate.config, None, dag_run("ada"))
    assert (found is None) is is_fit


@pytest.mark.parametrize("run_type", ["manual", "backfill"])
def test_nobody_approves_what_nobody_knows_who_has_started(
    candidate: Candidate, run_type: str
) -> None:
    candidate.configure(APPROVERS)
    candidate.ask()
    candidate.answer("Approve", user="grace")
    run = dag_run(None, run_type)
    with pytest.raises(AirflowFailException, match="does not know who started this run"):
        missing_approval(candidate.run, candidate.config, None, run)
    uris.delete(candidate.run.approval)
    with pytest.raises(AirflowFailException, match="does not know who started this run"):
        candidate.operator().execute(candidate.context() | {"dag_run": run})


def preset(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Make a preset with a section ``promotion`` that of the installation."""
    path = folder / "preset.toml"
    path.write_text(f"[promotion]\n{text}\n")
    monkeypatch.setenv("REPRETRAIN_PRESET", str(path))


def test_the_installations_preset_of_today_counts(
    candidate: Candidate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The run was recorded before anybody had to approve.
    candidate.configure({"promotion.require_approval": False})
    assert candidate.execute() is None
    preset(monkeypatch, tmp_path, "require_approval = true")
    missing = missing_approval(candidate.run, candidate.config, None, dag_run("ada"))
    assert "no approval of this candidate" in (missing or "")
    preset(monkeypatch, tmp_path, 'approvers = ["grace"]')
    operator = candidate.operator()
    with pytest.raises(TaskAwaitingInput):
        operator.execute(candidate.context())
    assert operator.assigned_users == [{"id": "grace", "name": "grace"}]
    candidate.answer("Approve", user="mallory")
    unfit = missing_approval(candidate.run, candidate.config, None, dag_run("ada"))
    assert "not among promotion.approvers (grace)" in (unfit or "")


def test_who_is_no_approver_any_more_has_not_approved(
    candidate: Candidate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate.configure(APPROVERS)
    candidate.ask()
    candidate.answer("Approve", user="grace")
    preset(monkeypatch, tmp_path, 'approvers = ["linus"]')
    unfit = missing_approval(candidate.run, candidate.config, None, dag_run("ada"))
    assert "not among promotion.approvers (linus)" in (unfit or "")


def test_the_answerer_sees_one_field_not_the_whole_trigger_form(candidate: Candidate) -> None:
    with DAG("approvals", params={"corpus.partition": Param(None, type=["null", "string"])}):
        operator = candidate.operator()
    assert list(operator.serialized_params) == ["comment"]


def test_names_cannot_be_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = Candidate(tmp_path, monkeypatch)
    plan = RunPlan.load(candidate.run.plan)
    plan.model_copy(update={"trained": {"[x](http://evil)": "uri"}}).write(candidate.run.plan)
    candidate.ask()
    assert "[x](http://evil)" not in candidate.asked[0]["body"]
