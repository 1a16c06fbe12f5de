"""Alerts through Airflow's providers, to a real mail server and real web endpoints."""

from __future__ import annotations

import ast
import logging
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DagRunState
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    ErrorType,
)
from airflow.sdk.execution_time.comms import ErrorResponse

from alerting import callbacks
from alerting.channels import ConnectionChannel
from model_registry import attempts, outcomes
from model_registry.errors import LeaseLostError
from operators.failures import PipelineFailure, RequestRefused, RunHasFailed, refused_by
from operators.tpu_failures import FailureKind, TpuTaskFailed
from operators.watch import WatchOperator, is_paused
from pipeline_alerts.causes import REMEDIES, Cause, Remedy
from pipeline_alerts.delivery import ChannelError
from pipeline_alerts.messages import compose
from pipeline_alerts.raising import raise_about_installation
from pipeline_alerts.standstill import no_service
from pipeline_config import ConfigError
from pipeline_store import identity, uris
from pipeline_store.formats import (
    Alert,
    BackfillRuns,
    FormatError,
    OutcomeKind,
    RunOutcome,
    RunPlan,
    RunRefusal,
)
from pipeline_store.layout import RunLayout, StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.servers import Endpoint, Mailbox, mail_server, web_endpoint
from tests.pipeline_alerts.situations import OWNER, PATTERN, new_run, record_of
from tests.pipeline_alerts.test_messages import ALERT, job_spoke
from tpu_lifecycle.records.installation import establish
from trained_models.errors import BadDataError, UserError

DAG_ID = "Test.DAG"
OWN_REASONS = {
    Cause.TASK_FAILED: "data.prepare: bad_data: 3 of 4 documents cannot be read",
    Cause.RUN_FAILED: "Airflow ended the run as failed",
    Cause.ENDED_WITHOUT_OUTCOME: "has no outcome",
    Cause.REJECTED: "the candidate's loss is higher",
    Cause.APPROVAL_WAITING: "waits for a person since",
    Cause.OVERDUE: "REPRETRAIN_OVERDUE_HOURS=30",
    Cause.BUDGET_HOURS: "9 of budget.max_hours=10",
    Cause.BUDGET_CHIP_HOURS: "8 of budget.max_chip_hours=9",
    Cause.BUDGET_PREEMPTIONS: "3 of budget.max_preemptions=3",
    Cause.PREEMPTION_STORM: "Lost 3 TPUs between",
    Cause.JOB_HUNG: "nothing moved for 31 s in phase save of 010-train; last: step 7",
    Cause.RUN_STALLED: "no job on its TPU has reported",
    Cause.TPU_WITHOUT_JOB: "is READY, but no job runs on it",
    Cause.PAUSED_WITH_TPU: "Test.DAG is paused, and the run rents",
    Cause.WATCH_SILENT: "why watch-silent",
    Cause.REAPER_SILENT: "The reaper (owner our-team) made its last pass",
    Cause.QUARANTINED: "Updates with partition 2026-01-01 were rejected 2 times",
    Cause.BACKFILL_ENDED: "day-8: refused: no text",
    Cause.NOTHING_NEW: "no new partition of corpus/{partition}/* since",
    Cause.NO_TPU: "why no-tpu",
    Cause.NEW_IDENTITY: "Those of earlier reservations stay this store's own",
    Cause.MAINTENANCE_FAILED: "Run scheduled__1 of tpu_reaper failed",
    Cause.TEST: "why test",
}
"""A part of the reason of each alert that `make_everything_wrong` has told."""
WEBHOOK_KEY = "T0000/B0000/secretsecretsecretsecret"


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as mailbox:
        yield mailbox


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with web_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def slack() -> Iterator[Endpoint]:
    with web_endpoint() as slack:
        yield slack


@pytest.fixture
def store(
    tmp_path: Path, mailbox: Mailbox, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> StoreLayout:
    """Return the store of an installation that mails and posts its alerts."""
    store = StoreLayout(str(tmp_path / "store"))
    monkeypatch.setenv("REPRETRAIN_STORE_URI", store.root)
    monkeypatch.setenv("REPRETRAIN_OWNER", OWNER)
    monkeypatch.setenv("REPRETRAIN_ALERT_CONN_IDS", "alerts_mail,alerts_web")
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_MAIL", mailbox.connection())
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_WEB", endpoint.connection())
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://airflow.example.com/base/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    situations.reaper_passed(store, hours_ago=0)
    return store


def watch(
    store: StoreLayout, state: Any = "running", *, paused: bool = False, **states: str
) -> dict[str, Any]:
    """Run the watch's task.

    :param state: what Airflow says of runs, or raises.
    :param paused: whether it says that DAGs are paused.
    :param states: what it says of others, by run id.
    """

    def ask(dag_id: str, run_id: str) -> DagRunState:
        if isinstance(state, Exception):
            raise state
        return DagRunState(states.get(run_id, state))

    operator = WatchOperator(task_id="watch", store_uri=store.root, input_pattern=PATTERN)
    dag = SimpleNamespace(is_paused=paused)
    ti = SimpleNamespace(get_dagrun_state=ask, get_dag=lambda _: dag)
    result: dict[str, Any] = operator.execute({"ti": ti})  # type: ignore[typeddict-item]
    return result


def task_context(
    run: RunLayout, task_id: str, error: Exception | None, cleared: int = 0
) -> dict[str, Any]:
    """Return what Airflow gives a callback.

    :param cleared: how often the run had been, when the task began or Airflow called.
    """
    record = record_of(run)
    ti = SimpleNamespace(
        dag_id=record.dag_id, run_id=record.run_id, task_id=task_id, map_index=-1, try_number=3
    )
    dag_run = SimpleNamespace(dag_id=record.dag_id, run_id=record.run_id, clear_number=cleared)
    return {"ti": ti, "dag_run": dag_run} | ({"exception": error} if error else {})


def dag_context(run_id: str, dag_id: str = DAG_ID, cleared: int = 0) -> dict[str, Any]:
    told = {"dag": SimpleNamespace(dag_id=dag_id), "run_id": run_id, "reason": "task_failure"}
    return told | {"dag_run": SimpleNamespace(clear_number=cleared)}


def not_found() -> AirflowRuntimeError:
    detail = {"status_code": 404, "message": "not found"}
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))


def rejected_twice(run: RunLayout) -> None:
    """Have a run rejected that was trained on a text which the gate has rejected before."""
    record = record_of(run)
    plan = RunPlan(
        partition=record.partition,
        parent_version="v-0",
        trained={record.partition: f"{run.store_root}/gone.json"},
        replayed={},
        not_replayed={},
        evaluated={},
        lease_sequence=1,
        created=datetime.now(UTC),
    )
    plan.create(run.plan)
    situations.rejected(run)
    lineage = StoreLayout(run.store_root).lineage(record.lineage_id)
    kept = attempts.record(lineage, run, record, RunOutcome.load(run.outcome))
    kept.model_copy(update={"run_key": "0" * 12}).write(lineage.attempt("0" * 12))


def ended_backfill(store: StoreLayout) -> None:
    """Have a backfill end, of which one run was refused, and whose others Airflow has deleted."""
    listed = {"refused": "day-8", "deleted": "day-9"}
    BackfillRuns(
        name="7-abc",
        dag_id=DAG_ID,
        backfill_id=7,
        lineage_id="default",
        runs=listed,
        created=datetime.now(UTC),
    ).create(store.backfill("7-abc"))
    RunRefusal(dag_id=DAG_ID, run_id="refused", reasons=["no text"], time=datetime.now(UTC)).create(
        store.run(identity.run_key(DAG_ID, "refused")).refusal
    )


def make_everything_wrong(store: StoreLayout) -> None:
    """Bring about every cause there is."""
    run = new_run(store)
    error = PipelineFailure(
        Remedy.MEND_INPUT, "data.prepare: bad_data: 3 of 4 documents cannot be read"
    )
    callbacks.task_failed(task_context(run, "data.prepare", error))
    callbacks.run_failed(dag_context(record_of(new_run(store)).run_id))
    callbacks.maintenance_failed(dag_context("scheduled__1", "tpu_reaper"))
    rejected_twice(new_run(store))
    situations.asked(new_run(store))
    situations.began(new_run(store), hours_ago=40)
    budgets = {"budget.max_hours": 10.0, "budget.max_chip_hours": 9.0, "budget.max_preemptions": 3}
    reservation = situations.reserved(store, new_run(store, budgets))
    situations.reserved_for(reservation, hours=9.0)
    situations.lose(reservation, 3)
    situations.rent(reservation, 4, hours=8.0)
    situations.hang(reservation, 4, hang_number=1)
    job_spoke(reservation, "the last that it did")
    situations.watched_for(store, hours=5)
    situations.reaper_passed(store, hours_ago=4)
    situations.corpus_was_quiet_for(store, days=9)
    ended_backfill(store)
    earlier = StoreLayout(f"{store.root}-earlier")
    establish(earlier)
    shutil.copytree(earlier.root, store.root, dirs_exist_ok=True)
    # What only a pass from outside finds, a wait that would count as standing still here, a test.
    placeholders = {"watch-1": Cause.WATCH_SILENT, "wait-1": Cause.NO_TPU, "test-1": Cause.TEST}
    for scope, cause in placeholders.items():
        raise_about_installation(
            store, scope, cause, about="a", summary=cause, reason=f"why {cause}"
        )


def test_every_cause_reaches_mail_slack_and_webhook_once_with_its_own_reason(
    store: StoreLayout,
    mailbox: Mailbox,
    endpoint: Endpoint,
    slack: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("operators.watch.tpu_of", no_service)
    monkeypatch.setenv("REPRETRAIN_ALERT_CONN_IDS", "alerts_mail,alerts_web,alerts_slack")
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_SLACK", slack.slack_connection(WEBHOOK_KEY))
    for name in ("STALLED", "IDLE_TPU"):
        monkeypatch.setenv(f"REPRETRAIN_{name}_MINUTES", "0.00001")
    make_everything_wrong(store)
    gone = {"refused": "failed", "deleted": "success"}
    watch(store, paused=True, **gone)
    ended = record_of(new_run(store)).run_id
    for _ in range(2):
        watch(store, paused=True, **gone | {ended: "failed"})
    got = sorted(key.rpartition("/")[2].partition(".")[0] for key in endpoint.ids)
    assert got == sorted(Cause)
    assert len(set(endpoint.ids)) == len(Cause)
    titles = sorted(str(request.body["title"]) for request in endpoint.requests)
    assert sorted(mailbox.subjects) == titles
    assert len(mailbox.letters) == len(slack.requests) == len(Cause)
    bodies = {str(request.body["cause"]): request.body for request in endpoint.requests}
    assert set(OWN_REASONS) == set(Cause)
    assert len({body["reason"] for body in bodies.values()}) == len(Cause)
    for cause, said in OWN_REASONS.items():
        body = bodies[cause]
        assert said in body["reason"]
        letter = mailbox.subjects.index(body["title"])
        [posted] = [one.body for one in slack.requests if one.body["text"] == body["title"]]
        blocks = [block["text"]["text"] for block in posted["blocks"]]
        assert body["reason"] in blocks
        for text in (mailbox.part("plain", letter), unescape(mailbox.part("html", letter))):
            assert body["reason"] in text
        for text in (mailbox.part("plain", letter), "\n".join(blocks)):
            assert f"What to do: {body['advice']}" in text
    assert mailbox.recipients[0] == ["ann@example.com", "bob@example.com"]


def test_a_backfill_ends_with_what_was_not_learned_and_why(store: StoreLayout) -> None:
    ended_backfill(store)
    watch(store, refused="failed")
    assert BackfillRuns.load(store.backfill("7-abc")).ended is None
    for _ in range(2):
        watch(store, refused="failed", deleted="failed")
    kept = BackfillRuns.load(store.backfill("7-abc"))
    assert kept.ended is not None
    assert kept.not_learned["day-8"] == "refused: no text"
    alert = Alert.load(store.alert("backfill-7-abc", Cause.BACKFILL_ENDED))
    assert "0 of 2 partitions learned" in alert.title
    assert "day-8: refused: no text" in alert.reason
    assert "day-9: " in alert.reason


@pytest.mark.parametrize("remedy", Remedy)
def test_what_the_pipeline_stops_is_told_in_full_with_what_helps(
    store: StoreLayout, endpoint: Endpoint, mailbox: Mailbox, remedy: Remedy
) -> None:
    error = PipelineFailure(remedy, "planned from v-1, but v-2 is in use")
    callbacks.task_failed(task_context(new_run(store), "lineage.claim", error))
    [request] = endpoint.requests
    assert "planned from v-1, but v-2 is in use" in str(request.body["reason"])
    assert request.body["advice"] == REMEDIES[remedy]
    assert REMEDIES[remedy] in mailbox.part("plain").replace("\n", " ")


def test_a_refusal_is_told_as_one(store: StoreLayout, endpoint: Endpoint) -> None:
    refused = RequestRefused(["tpu.zones: empty"])
    callbacks.task_failed(task_context(new_run(store), "validate", refused))
    [request] = endpoint.requests
    assert str(request.body["title"]).endswith(": refused before anything was spent")
    assert "tpu.zones: empty" in str(request.body["reason"])


@pytest.mark.parametrize("kind", FailureKind)
def test_each_kind_of_failure_of_a_tpu_has_its_advice(
    store: StoreLayout, endpoint: Endpoint, kind: FailureKind
) -> None:
    error = TpuTaskFailed(kind, "what it said\nand a line of text")
    callbacks.task_failed(task_context(new_run(store), "tpu.train", error))
    [request] = endpoint.requests
    assert request.body["advice"] == REMEDIES[error.remedy]
    assert "what it said" in str(request.body["reason"])
    assert "a line of text" not in str(request.body["reason"])


def test_a_last_task_that_fails_with_its_run_is_not_told(
    store: StoreLayout, endpoint: Endpoint
) -> None:
    callbacks.task_failed(task_context(new_run(store), "release", RunHasFailed("failed")))
    assert endpoint.requests == []


def test_a_letter_has_text_html_and_an_id_of_its_own(store: StoreLayout, mailbox: Mailbox) -> None:
    ConnectionChannel("alerts_mail").send(compose(ALERT))
    [letter] = mailbox.letters
    assert letter.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in letter.iter_parts()] == ["text/plain", "text/html"]
    assert "at most 3.90 USD" in mailbox.part("plain")
    assert "&lt;b&gt;of" in mailbox.part("html")
    assert letter["Message-ID"] == (
        "<0a1b2c3d4e5f-task-failed.tpu.train@bert-repretraining.invalid>"
    )
    assert letter["From"] == "pipeline@example.com"


def test_slack_gets_blocks_through_its_webhook(
    store: StoreLayout, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_SLACK", endpoint.slack_connection(WEBHOOK_KEY))
    ConnectionChannel("alerts_slack").send(compose(ALERT))
    [request] = endpoint.requests
    assert request.path == f"/services/{WEBHOOK_KEY}"
    assert request.body["text"] == ALERT.title
    assert request.body["blocks"][0]["type"] == "header"


def test_the_webhook_can_tell_repetitions(store: StoreLayout, endpoint: Endpoint) -> None:
    ConnectionChannel("alerts_web").send(compose(ALERT))
    [request] = endpoint.requests
    assert request.path == "/alerts"
    assert request.headers["Idempotency-Key"] == "0a1b2c3d4e5f/task-failed.tpu.train"


@pytest.mark.parametrize("conn_id", ["alerts_mail", "alerts_web", "alerts_slack"])
def test_texts_are_never_run_as_templates(
    store: StoreLayout,
    mailbox: Mailbox,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    conn_id: str,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_SLACK", endpoint.slack_connection(WEBHOOK_KEY))
    evil = "{{ 6 * 7 }}"
    ConnectionChannel(conn_id).send(compose(ALERT.model_copy(update={"reason": evil})))
    got = [str(request.body) for request in endpoint.requests]
    got += [mailbox.part("html")] if mailbox.letters else []
    assert len(got) == 1
    assert evil in got[0]


def test_a_channel_that_is_down_gets_it_when_it_is_up(
    store: StoreLayout, mailbox: Mailbox, endpoint: Endpoint
) -> None:
    endpoint.status = 503
    run = new_run(store)
    callbacks.task_failed(task_context(run, "tpu.train", None))
    assert len(mailbox.letters) == 1
    assert len(endpoint.requests) == 1
    with pytest.raises(AirflowException, match=r"alerts_web.*503"):
        watch(store)
    endpoint.status = 200
    endpoint.requests.clear()
    watch(store)
    watch(store)
    assert endpoint.ids == [f"{record_of(run).run_key}/task-failed.tpu.train"]
    assert len(mailbox.letters) == 1


@pytest.mark.parametrize("status", [302, 400])
def test_only_a_success_counts_as_delivered(
    store: StoreLayout, endpoint: Endpoint, status: int
) -> None:
    endpoint.status = status
    with pytest.raises(ChannelError, match=str(status)):
        ConnectionChannel("alerts_web").send(compose(ALERT))


def test_a_server_that_is_not_there_is_an_error_without_secrets(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with web_endpoint() as gone:
        secret, slack = gone.connection(f"/hooks/{WEBHOOK_KEY}"), gone.slack_connection(WEBHOOK_KEY)
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_WEB", secret)
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_SLACK", slack)
    for conn_id in ("alerts_web", "alerts_slack"):
        with pytest.raises(ChannelError) as failed:
            ConnectionChannel(conn_id).send(compose(ALERT))
        assert WEBHOOK_KEY not in str(failed.value)
        assert "secretsecret" not in str(failed.value)
        assert failed.value.__cause__ is None


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        ('{"conn_type": "mysql"}', "type 'mysql'"),
        ('{"conn_type": "smtp", "extra": {"from_email": "a@example.com"}}', "has no 'to'"),
        ('{"conn_type": "smtp", "extra": {"to": "a@example.com"}}', "has no 'from_email'"),
    ],
)
def test_a_connection_that_cannot_be_used_says_what_it_lacks(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch, connection: str, expected: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS_ODD", connection)
    with pytest.raises(ChannelError, match=expected):
        ConnectionChannel("alerts_odd").send(compose(ALERT))


def test_without_connections_alerts_are_kept_and_logged(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REPRETRAIN_ALERT_CONN_IDS", "")
    run = new_run(store)
    callbacks.task_failed(task_context(run, "tpu.train", None))
    assert watch(store)["raised"] == []
    assert "ALERT [repretraining] Test.DAG 2026-01-01: task tpu.train failed" in caplog.text
    assert uris.exists(store.alert(record_of(run).run_key, "task-failed.tpu.train"))


def test_a_task_that_airflow_reports_twice_is_told_once(
    store: StoreLayout, mailbox: Mailbox, endpoint: Endpoint
) -> None:
    run = new_run(store)
    for _ in range(2):
        # After a lost heartbeat Airflow gives no exception.
        callbacks.task_failed(task_context(run, "tpu.train", None))
    callbacks.run_failed(dag_context(record_of(run).run_id))
    watch(store, "failed")
    callbacks.run_failed(dag_context(record_of(run).run_id))
    [letter] = mailbox.letters
    assert letter["Subject"] == "[repretraining] Test.DAG 2026-01-01: task tpu.train failed"
    assert "its heartbeat was lost" in mailbox.part("plain")
    assert len(endpoint.requests) == 1
    body = endpoint.requests[0].body
    assert body["link"].startswith("http://airflow.example.com/base/dags/Test.DAG/runs/manual__")
    assert body["link"].endswith("/tasks/tpu.train")


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_run_that_fails_again_after_it_was_cleared_is_told_again_with_its_own_reason(
    store: StoreLayout, endpoint: Endpoint, clearing: SimpleNamespace, is_seen: bool
) -> None:
    run = new_run(store)
    for times in range(3):
        clearing.times = times
        if is_seen:
            watch(store)
        # What the task was told when it began may be old.
        failed = task_context(run, "tpu.train", AirflowFailException(f"reason {times}"))
        for _ in range(2):
            callbacks.task_failed(failed)
        callbacks.run_failed(dag_context(record_of(run).run_id, cleared=times))
        outcomes.record(run, OutcomeKind.FAILED, f"failed: {times}", written_by="release")
        watch(store, "failed")
        outcomes.reopen(run)
    assert [request.body["cause"] for request in endpoint.requests] == ["task-failed"] * 3
    assert {request.body["detail"] for request in endpoint.requests} == {"tpu.train"}
    assert len(set(endpoint.ids)) == 3


def test_what_was_told_of_a_task_counts_though_another_one_was_cleared_since(
    store: StoreLayout, endpoint: Endpoint, clearing: SimpleNamespace
) -> None:
    run = new_run(store)
    failed = task_context(run, "prepare", PipelineFailure(Remedy.MEND_INPUT, "bad data"))
    failed["ti"].map_index = 0
    callbacks.task_failed(failed)
    clearing.times, clearing.failed = 1, ["prepare_0"]
    callbacks.run_failed(dag_context(record_of(run).run_id, cleared=1))
    watch(store, "failed")
    assert [request.body["cause"] for request in endpoint.requests] == ["task-failed"]
    outcome = RunOutcome.load(run.outcome)
    assert outcome.outcome is OutcomeKind.FAILED
    assert "bad data" in outcome.reason


def test_a_run_that_ends_after_it_was_cleared_is_not_told_before_it_ends(
    store: StoreLayout, endpoint: Endpoint, clearing: SimpleNamespace
) -> None:
    run = new_run(store)
    callbacks.task_failed(task_context(run, "tpu.train", AirflowFailException("no")))
    outcomes.record(run, OutcomeKind.FAILED, "failed: tpu.train", written_by="release")
    clearing.times = 1
    for state in ("queued", "running"):
        watch(store, state)
    assert [request.body["cause"] for request in endpoint.requests] == ["task-failed"]
    outcomes.reopen(run)
    watch(store, "failed")
    assert [request.body["cause"] for request in endpoint.requests][1:] == ["ended-without-outcome"]


def test_a_run_that_a_person_ends_after_it_was_cleared_does_not_have_its_old_reason(
    store: StoreLayout, endpoint: Endpoint, clearing: SimpleNamespace
) -> None:
    run = new_run(store)
    error = PipelineFailure(Remedy.MEND_INPUT, "no quota")
    callbacks.task_failed(task_context(run, "tpu.train", error))
    clearing.times = 1
    watch(store, "failed")
    assert [request.body["cause"] for request in endpoint.requests][1:] == ["ended-without-outcome"]
    assert "no quota" not in RunOutcome.load(run.outcome).reason


def test_a_task_that_died_silently_after_the_run_was_cleared_is_told_as_airflow_counts(
    store: StoreLayout, endpoint: Endpoint
) -> None:
    run = new_run(store)
    for times in (0, 1, 1):
        # The DAG processor calls, which can ask nobody.
        callbacks.task_failed(task_context(run, "tpu.train", None, cleared=times))
        callbacks.run_failed(dag_context(record_of(run).run_id, cleared=times))
    assert [request.body["cause"] for request in endpoint.requests] == ["task-failed"] * 2


def test_an_airflow_that_does_not_say_how_often_leaves_what_the_task_was_told(
    store: StoreLayout, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_dag_id: str, _run_id: str) -> int:
        raise not_found()

    monkeypatch.setattr(callbacks, "times_cleared", broken)
    run = new_run(store)
    callbacks.task_failed(task_context(run, "tpu.train", AirflowFailException("no"), cleared=2))
    assert endpoint.ids == [f"{record_of(run).run_key}/task-failed.tpu.train.cleared-2"]


def test_a_lost_heartbeat_that_the_watch_saw_first_is_not_told_again(
    store: StoreLayout, endpoint: Endpoint
) -> None:
    run = new_run(store)
    watch(store, "failed")
    callbacks.task_failed(task_context(run, "tpu.train", None))
    assert [request.body["cause"] for request in endpoint.requests] == ["ended-without-outcome"]
    # One that says why it failed is told all the same.
    callbacks.task_failed(task_context(run, "tpu.train", AirflowFailException("broken")))
    assert [request.body["cause"] for request in endpoint.requests][1:] == ["task-failed"]


def test_each_task_whose_heartbeat_was_lost_is_told(store: StoreLayout, endpoint: Endpoint) -> None:
    run = new_run(store)
    for task_id in ("tpu.train", "tpu.delete"):
        callbacks.task_failed(task_context(run, task_id, None))
    assert [r.body["detail"] for r in endpoint.requests] == ["tpu.train", "tpu.delete"]


def test_a_run_that_a_person_ended_is_told_by_the_watch(
    store: StoreLayout, mailbox: Mailbox, endpoint: Endpoint
) -> None:
    run = new_run(store)
    for state in ("running", "failed", "failed"):
        watch(store, state)
    assert endpoint.ids == [f"{record_of(run).run_key}/ended-without-outcome"]
    assert len(mailbox.letters) == 1


def test_a_question_is_told_with_the_page_to_answer_at(
    store: StoreLayout, mailbox: Mailbox, endpoint: Endpoint
) -> None:
    situations.asked(new_run(store))
    for _ in range(2):
        watch(store)
    [request], [_letter] = endpoint.requests, mailbox.letters
    assert request.body["cause"] == "approval-waiting"
    assert request.body["link"].startswith("http://airflow.example.com/base/dags/Test.DAG/runs/")
    assert request.body["link"].endswith("/required_actions")
    assert request.body["link"] in mailbox.part("plain")


def test_a_run_that_was_deleted_in_airflow_is_told(store: StoreLayout, endpoint: Endpoint) -> None:
    new_run(store)
    watch(store, not_found())
    assert "was deleted" in endpoint.requests[0].body["reason"]


def test_a_dag_that_was_deleted_is_not_paused() -> None:
    def ask(_dag_id: str) -> Any:
        raise not_found()

    assert is_paused(ask, DAG_ID) is False
    assert is_paused(lambda _: SimpleNamespace(is_paused=True), DAG_ID) is True


def test_an_airflow_that_does_not_answer_ends_no_run(
    store: StoreLayout, endpoint: Endpoint
) -> None:
    run = new_run(store)
    detail = {"status_code": 500, "message": "broken"}
    broken = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))
    with pytest.raises(AirflowException, match="1 problem"):
        watch(store, broken)
    assert endpoint.requests == []
    assert not uris.exists(run.outcome)


@pytest.mark.parametrize("with_text", [False, True])
def test_text_of_errors_and_logs_leaves_only_if_allowed(
    store: StoreLayout,
    mailbox: Mailbox,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    with_text: bool,
) -> None:
    monkeypatch.setenv("REPRETRAIN_ALERT_WITH_TEXT", str(int(with_text)))
    run = new_run(store)
    reservation = situations.reserved(store, run)
    situations.rent(reservation, 1, hours=0.1)
    job_spoke(reservation, "logged corpus text")
    error = AirflowException("prepare: ValueError: quoted corpus text")
    callbacks.task_failed(task_context(run, "data.prepare", error))
    failure = TpuTaskFailed(FailureKind.JOB, "Job 010-train failed.\nlast words of corpus text")
    callbacks.task_failed(task_context(run, "tpu.train", failure))
    assert len(mailbox.letters) == len(endpoint.requests) == 2
    stored = [uris.read(uri).decode() for uri in uris.list_files(store.alerts)]
    told = [mailbox.part(kind, n) for kind in ("plain", "html") for n in (0, 1)]
    everything = "\n".join([*stored, *told, *(str(r.body) for r in endpoint.requests)])
    for text in ("quoted corpus text", "last words of corpus text", "logged corpus text"):
        assert (text in everything) is with_text
    # What the pipeline itself says is always told.
    assert "[job] Job 010-train failed." in everything


def test_a_failed_maintenance_dag_is_told_once_a_day(
    store: StoreLayout, endpoint: Endpoint
) -> None:
    for number in range(3):
        callbacks.maintenance_failed(dag_context(f"scheduled__{number}", "tpu_reaper"))
    [request] = endpoint.requests
    assert request.body["title"] == "[repretraining] tpu_reaper: failed"
    assert request.body["link"].endswith("/dags/tpu_reaper/runs/scheduled__0")


def test_a_run_that_was_never_recorded_can_be_told(store: StoreLayout, endpoint: Endpoint) -> None:
    callbacks.run_failed(dag_context("manual__never-validated"))
    [request] = endpoint.requests
    assert request.body["title"].endswith("Test.DAG manual__never-validated: the run failed")
    assert request.body["partition"] is None


def test_an_alert_that_was_raised_reads_as_it_was_written(store: StoreLayout) -> None:
    run = new_run(store)
    callbacks.task_failed(task_context(run, "tpu.train", None))
    alert = Alert.load(store.alert(record_of(run).run_key, "task-failed.tpu.train"))
    assert alert.spent is None
    assert "nothing: no TPU was asked for" in compose(alert).text


@pytest.mark.parametrize(
    ("error", "said", "remedy"),
    [
        (FormatError("plan.json is damaged"), "plan.json is damaged", Remedy.MEND_AND_CLEAR),
        (LeaseLostError("another run has it"), "another run has it", Remedy.MEND_AND_CLEAR),
        (ConfigError(["tpu.zones: empty"]), "tpu.zones: empty", Remedy.MEND_AND_CLEAR),
        (refused_by(UserError("no such head")), "no such head", Remedy.CHANGE_REQUEST),
        (refused_by(BadDataError("no examples")), "no examples", Remedy.MEND_INPUT),
    ],
)
def test_errors_of_the_pipelines_own_are_quoted_wherever_they_are_raised(
    store: StoreLayout, endpoint: Endpoint, error: Exception, said: str, remedy: Remedy
) -> None:
    callbacks.task_failed(task_context(new_run(store), "lineage.claim", error))
    [request] = endpoint.requests
    assert said in str(request.body["reason"])
    assert request.body["advice"] == REMEDIES[remedy]


UNQUOTED = {
    "python_module": "the last words of a job may hold corpus text",
    **dict.fromkeys(
        ("arrivals", "mirror", "promoted_models", "retention", "watch"),
        "of a DAG that looks after others: alerts about it name its run and quote no task",
    ),
}
"""Modules of operators that raise Airflow's own exceptions, which no alert quotes, and why."""


def test_only_what_may_hold_text_or_is_never_told_raises_what_no_alert_quotes() -> None:
    raising = {
        file.stem
        for file in Path(callbacks.__file__).parents[1].joinpath("operators").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if ast.unparse(node.exc.func) in ("AirflowException", "AirflowFailException")
    }
    assert raising == set(UNQUOTED)
