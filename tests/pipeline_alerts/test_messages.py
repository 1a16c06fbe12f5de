"""What people and programs get to read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline_alerts.causes import ADVICE, DOCUMENT, Cause, base_cause, runbook, severity
from pipeline_alerts.facts import read_facts
from pipeline_alerts.messages import compose
from pipeline_alerts.raising import MAX_REASON, AlertedRun, raise_about_run
from pipeline_store import uris
from pipeline_store.formats import Alert, AlertedTpu, Heartbeat, Spending
from pipeline_store.layout import StoreLayout
from tests.pipeline_alerts import situations
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.records.reservation import OpenReservation

REPOSITORY = Path(__file__).parents[2]
ALERT = Alert(
    scope="0a1b2c3d4e5f",
    cause="task-failed.tpu.train",
    title="[repretraining] bert_repretraining 2026-01-03: task tpu.train failed",
    reason="because <b>of</b> & this",
    time=datetime(2026, 1, 4, 5, 6, 7, tzinfo=UTC),
    dag_id="bert_repretraining",
    run_id="scheduled__2026-01-04",
    partition="2026-01-03",
    lineage_id="default",
    link='http://airflow/dags/d/runs/r?"><script>',
    spent=Spending(chip_hours=3.25, cost=3.9, currency="USD"),
    tpus=[AlertedTpu(name="bert-0a-g1-a1", zone="us-central1-a", state="READY, rented")],
    log_place="/store/log",
)


def job_spoke(reservation: OpenReservation, text: str) -> None:
    """Let a job of the newest attempt log a text, as the agent stores it."""
    record = reservation.attempts()[-1]
    submit_job(reservation, record, job_id="010-train", entry_point="training.train", arguments=[])
    uris.write(record.layout.log_chunk(0, "010-train", 0), text.encode())
    Heartbeat(
        worker=0,
        token=record.attempt.token,
        time=datetime.now(UTC),
        job_id="010-train",
        progress=None,
        log_chunks=1,
        disk_free_bytes=1,
    ).write(record.layout.heartbeat(0))


def test_a_text_says_what_why_how_much_and_what_to_do() -> None:
    text = compose(ALERT).text
    for part in (
        ALERT.title,
        ALERT.reason,
        "bert_repretraining scheduled__2026-01-04",
        "at most 3.90 USD, 3.25 chip-hours",
        "bert-0a-g1-a1 in us-central1-a: READY, rented",
        "2026-01-04 05:06:07 UTC",
        "/store/log",
        "clear the task",
        "docs/operate/alerts.md#task-failed",
        "Open in Airflow: http://airflow/dags/d/runs/r",
    ):
        assert part in text


def test_html_is_escaped() -> None:
    html = compose(ALERT).html
    assert "<b>of" not in html
    assert "<script>" not in html
    assert "&lt;b&gt;of&lt;/b&gt; &amp; this" in html


def test_slack_gets_no_markup_from_texts() -> None:
    blocks = compose(ALERT).blocks
    kinds = {block["text"]["type"] for block in blocks if ALERT.reason in block["text"]["text"]}
    assert kinds == {"plain_text"}
    [link] = [block for block in blocks if block["text"]["type"] == "mrkdwn"]
    assert link["text"]["text"].count("<") == 1


def test_long_texts_fit_into_slack() -> None:
    long = ALERT.model_copy(update={"title": "t" * 500, "log_lines": ["x" * 300] * 30})
    for block in compose(long).blocks:
        assert len(block["text"]["text"]) <= (150 if block["type"] == "header" else 3000)


def test_the_webhook_gets_all_of_it() -> None:
    payload = compose(ALERT).payload
    assert payload["schema"] == "bert-repretraining-alert"
    assert payload["schema_version"] == 1
    assert payload["id"] == "0a1b2c3d4e5f/task-failed.tpu.train"
    assert (payload["cause"], payload["detail"]) == ("task-failed", "tpu.train")
    assert payload["spent"] == {"chip_hours": 3.25, "cost": 3.9, "currency": "USD"}
    assert payload["time"] == "2026-01-04T05:06:07Z"
    assert payload["advice"]
    assert payload["severity"] == "warning"
    assert payload["runbook"] == "docs/operate/alerts.md#task-failed"


def test_a_title_is_one_line(tmp_path: Path) -> None:
    alert = raise_about_run(
        StoreLayout(str(tmp_path)),
        AlertedRun("d", "r\nBcc: all@example.com"),
        Cause.RUN_FAILED,
        summary="a\r\nb",
        reason="x" * 9000,
    )
    assert alert is not None
    assert alert.title == "[repretraining] d r Bcc: all@example.com: a b"
    assert len(alert.reason) <= MAX_REASON + 2


@pytest.mark.parametrize("with_text", [False, True])
def test_log_lines_are_quoted_only_if_allowed(tmp_path: Path, with_text: bool) -> None:
    store = StoreLayout(str(tmp_path))
    run = situations.new_run(store)
    reservation = situations.reserved(store, run)
    situations.rent(reservation, 1, hours=0.5)
    job_spoke(reservation, "first\nthe secret corpus text\n" + "y" * 1000)
    record = situations.record_of(run)
    alert = raise_about_run(
        store,
        AlertedRun(record.dag_id, record.run_id),
        Cause.RUN_FAILED,
        summary="failed",
        reason="why",
        with_text=with_text,
    )
    assert alert is not None
    stored = uris.read(store.alert(alert.scope, alert.cause)).decode()
    shown = compose(alert)
    for text in (stored, shown.text, shown.html, str(shown.payload), str(shown.blocks)):
        assert ("the secret corpus text" in text) is with_text
    assert "010-train/log" in shown.text
    assert ("not quoted" in shown.text) is not with_text
    assert all(len(line) <= 300 for line in alert.log_lines)


def test_a_damaged_run_folder_costs_facts_not_the_alert(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path))
    run = situations.new_run(store)
    reservation = situations.reserved(store, run)
    situations.rent(reservation, 1, hours=0.5)
    uris.write(reservation.attempts()[0].layout.record, b"{")
    facts = read_facts(run, with_text=False)
    assert facts.record is not None
    assert "cannot be read" in facts.unreadable


def test_a_tpu_that_is_gone_or_was_never_asked_for_is_not_left(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path))
    run = situations.new_run(store)
    reservation = situations.reserved(store, run)
    situations.lose(reservation, 1)
    reservation.new_attempt(2, "us-central1-a")
    facts = read_facts(run, with_text=False)
    assert facts.tpus == []
    assert facts.spent is not None


def test_every_cause_has_advice_and_a_section_of_the_runbook() -> None:
    text = (REPOSITORY / DOCUMENT).read_text()
    sections = set(re.findall(r"^### ([a-z-]+)$", text, re.MULTILINE))
    assert sections == {str(cause) for cause in Cause}
    row = r"^\| `.*\| \[([a-z-]+)\]\(#\1\) \| \*{0,2}([a-z]+)\*{0,2} \|$"
    by_title = re.findall(row, text, re.MULTILINE)
    assert sorted(by_title) == sorted((str(cause), str(severity(cause))) for cause in Cause)
    assert set(ADVICE) == set(Cause)
    assert base_cause("task-failed.tpu.train") is Cause.TASK_FAILED
    assert runbook("overdue") == "docs/operate/alerts.md#overdue"


def test_the_runbook_is_an_address_where_the_documentation_is_served() -> None:
    message = compose(ALERT, docs_url="https://docs.example/bert")
    address = "https://docs.example/bert/operate/alerts.html#task-failed"
    assert message.payload["runbook"] == address
    assert address in message.text
    assert f'<a href="{address}">' in message.html
