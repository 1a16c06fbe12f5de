"""What the pages on runs and models show, made from stores that runs have left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

import pytest

from model_registry import lease, outcomes, registry
from pages import formatting, routes
from pages.charts import Series, interval_chart, line_chart, share_bar
from pipeline_alerts.causes import ADVICE, Cause
from pipeline_store import uris
from pipeline_store.formats import (
    Alert,
    AlertCleared,
    Answer,
    AttemptEvent,
    ForgettingScore,
    Ledger,
    LedgerEntry,
    OutcomeKind,
    Reservation,
    RunApproval,
    RunEstimate,
    RunPlan,
    RunRecord,
    SpentOn,
    TotalLoss,
    TrainingResult,
    Verdict,
)
from tests.golden.more_files import full
from tests.model_registry.runs import CONFIG, NOW, FinishedRun
from tests.model_registry.test_gate_probes import comparison
from tests.plugins.page_site import DAG_ID, Site, finished, publish, run_page
from tpu_lifecycle.records.ledger import write_bill
from tpu_lifecycle.records.reservation import open_reservation, reserve
from trained_models import metric_files
from trained_models.metric_files import MetricFiles


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site.over(tmp_path, monkeypatch)


def test_a_run_of_another_dag_is_told_so(site: Site) -> None:
    page = site.get("/run", dag_id="other", run_id="x")
    assert f"This tab is about runs of <code>{routes.MAIN_DAG}</code>" in page
    assert "data-refresh" not in page


def test_a_run_that_has_just_begun_or_was_refused_is_told_so(site: Site) -> None:
    page = site.get("/run", dag_id=routes.MAIN_DAG, run_id="a/b")
    assert "left nothing in the store yet" in page
    assert f"/dags/{routes.MAIN_DAG}/runs/a%2Fb/tasks/validate" in page
    assert f'<body data-refresh="{routes.REFRESH_SECONDS}">' in page


def test_a_finished_run_shows_its_verdict_and_numbers(site: Site) -> None:
    made = finished(site, "1")
    publish(made)
    outcomes.record(
        made.run, OutcomeKind.PROMOTED, "it won", written_by="promote", version_id=made.version_id
    )
    page = run_page(site, made)
    verdict = Verdict.load(made.run.verdict(None))
    assert verdict.reason in page.replace("&#39;", "'")
    assert "<h2>Outcome: promoted</h2>" in page
    assert "6.0000" in page
    assert f"{verdict.candidate_loss:.4f}" in page
    assert f"{verdict.improvement:+.4f}" in page
    assert "400 steps, 1,500,000 tokens" in page
    assert "no model in use" in page


def test_losses_of_both_models_and_who_is_new_are_shown(site: Site) -> None:
    first = finished(site, "1")
    publish(first)
    page = run_page(site, finished(site, "2", parent=first.version_id))
    assert '<th class="n">candidate</th><th class="n">baseline</th>' in page
    assert '<span class="soft">(new)</span>' in page
    assert first.version_id in page


def test_recall_before_and_after_is_shown(site: Site) -> None:
    first = finished(site, "1")
    publish(first)
    made = finished(site, "2", parent=first.version_id)
    assert "ecall@1" not in run_page(site, made)
    made.embed(candidate=[1.0] * 10 + [3.0] * 30, baseline=[1.0] * 30 + [2.0] * 10)
    page = run_page(site, made)
    assert '<th class="n">candidate recall@1</th><th class="n">baseline recall@1</th>' in page
    assert '<td class="n">0.250</td><td class="n">0.750</td>' in page
    assert "0.750 before,\n0.250 after" in page
    assert "For information only: it does not decide." in page


def test_a_head_that_was_trained_alone_is_shown(site: Site) -> None:
    first = finished(site, "1")
    publish(first)
    made = finished(site, "2", parent=first.version_id)
    assert "head is new" not in run_page(site, made)
    head = made.run.head(first.version_id)
    metrics = MetricFiles(head.metrics)
    for step in (10, 20):
        metrics.add(metric_files.LOOP, step, loss=7 - step / 10)
    metrics.publish()
    # Before it is finished, too.
    assert "Masked-LM loss of the new head alone" in run_page(site, made)
    done = TrainingResult.load(made.run.training.result)
    done.model_copy(update={"train_steps": 1100}).create(head.result)
    page = run_page(site, made)
    assert "The masked-LM head is new: 1,100 steps of it alone" in page
    assert "compared with the encoder under that head" in page


def test_labelled_tasks_are_shown(site: Site) -> None:
    made = finished(site, "1")
    assert "Labelled tasks" not in run_page(site, made)
    lost = comparison("moods", -0.1)
    uri = made.run.verdict(None)
    Verdict.load(uri).model_copy(update={"probes": [lost]}).write(uri)
    page = run_page(site, made)
    assert "<h2>Labeled tasks</h2>" in page
    assert lost.sentence in page


def test_what_is_forgotten_is_shown_over_the_versions(site: Site) -> None:
    first = finished(site, "1")
    publish(first)
    made = finished(site, "2", parent=first.version_id)
    assert "Forgetting" not in run_page(site, made)
    uri = made.run.verdict(first.version_id)
    lost = ForgettingScore(
        set_name="day-1",
        documents=40,
        best_version=first.version_id,
        best_loss=5.5,
        candidate_loss=5.65,
        forgotten=0.15,
        low=0.12,
        high=0.18,
    )
    Verdict.load(uri).model_copy(update={"forgetting": [lost]}).write(uri)
    page = run_page(site, made)
    assert "<h2>Forgetting</h2>" in page
    assert "at most 0.2 nats per token may be lost in all" in page
    assert '<td class="n">0.1500</td><td class="n">0.1200 to 0.1800</td>' in page
    assert "Loss on day-1 over the versions of the lineage" in page
    assert f">{first.version_id[-6:]}<" in page
    assert ">this run<" in page
    total = TotalLoss(
        name="things",
        metric="accuracy",
        count=300,
        best_version=first.version_id,
        best=0.9,
        candidate=0.85,
        difference=-0.05,
        low=-0.07,
        high=-0.03,
        max_loss=0.02,
    )
    Verdict.load(uri).model_copy(update={"probe_totals": [total]}).write(uri)
    page = run_page(site, made)
    assert "against the best version</h2>" in page
    assert '<td class="n">0.850</td><td class="n">-0.0700 to -0.0300</td>' in page


def test_the_training_curve_is_drawn(site: Site) -> None:
    made = finished(site, "1")
    metrics = MetricFiles(made.run.training.metrics)
    for step in range(10, 101, 10):
        metrics.add(metric_files.LOOP, step, loss=10 - step / 20)
    metrics.add(metric_files.HELD_OUT, 100, loss=5.5)
    metrics.add(metric_files.LOOP, 110, loss=float("nan"))
    metrics.publish()
    page = run_page(site, made)
    assert "Masked-LM loss while training" in page
    assert '<path class="a" d="M' in page
    assert '<circle class="b"' in page


def test_the_estimate_is_called_one(site: Site) -> None:
    made = finished(site, "1")
    RunEstimate(
        train_steps=400,
        rows=102_400,
        tokens=13_107_200,
        chip_hours=None,
        hours=None,
        cost=None,
        currency="USD",
        worst_case_cost=230.4,
        basis="nothing is known of the speed",
        lines=[],
    ).write(made.run.estimate)
    page = run_page(site, made)
    assert "An estimate, not a promise. Nothing is known of the speed." in page
    assert "230.40" in page
    assert "13,107,200" in page


def test_an_open_question_and_its_answer_are_shown(site: Site) -> None:
    made = finished(site, "1")
    asked = RunApproval(
        candidate_sha256="2" * 64,
        baseline=None,
        answer=Answer.WAITING,
        asked=NOW,
        deadline=NOW + timedelta(hours=72),
    )
    asked.write(made.run.approval)
    page = run_page(site, made)
    assert "waiting for a person" in page
    assert f"/dags/{DAG_ID}/runs/1/required_actions" in page
    asked.model_copy(
        update={
            "answer": Answer.REJECTED,
            "answered": NOW,
            "answered_by": "ada",
            "comment": "<b>no</b>",
        }
    ).write(made.run.approval)
    page = run_page(site, made)
    assert "ada, 2026-01-31 12:00 UTC" in page
    assert "&lt;b&gt;no&lt;/b&gt;" in page


def test_a_reservation_without_an_attempt_has_cost_nothing(site: Site) -> None:
    made = finished(site, "1")
    Reservation(
        run_key=made.key,
        generation=1,
        project_id="p",
        zones=["us-central1-a"],
        owner="o",
        dag_id=DAG_ID,
        accelerator_type="v5litepod-8",
        bundle_sha256="0" * 64,
        created=NOW,
        expires_at=NOW,
        delete_grace_seconds=1,
        price_per_chip_hour=1.2,
        currency="USD",
        price_date="2026-01",
    ).write(made.run.reservation(1).record)
    assert "0 chip-hours, at most 0 USD" in run_page(site, made)


def bill(site: Site, made: FinishedRun, **more: float) -> None:
    """Close the books of a run that had one TPU of 8 chips for a quarter of an hour."""
    terms = {"run_key": made.key, "generation": 1} | {
        "price_per_chip_hour": 1.0,
        "currency": "USD",
        "price_date": "2026-01",
        "provisioning_model": "spot",
    }
    full(Reservation, project_id="p", **terms).write(made.run.reservation(1).record)
    seconds = {SpentOn.COMPILE: 90.0, SpentOn.STEP: 720.0, SpentOn.DELETION: 90.0}
    entry = full(
        LedgerEntry,
        chips=8,
        created=datetime.now(UTC),
        billed_seconds=900.0,
        chip_seconds=7200.0,
        cost=2.0,
        seconds=seconds,
        loss="",
    )
    Ledger(entries=[entry], **terms | more).write(made.run.reservation(1).ledger)


def test_what_the_time_was_spent_on_is_drawn(site: Site) -> None:
    made = finished(site, "1")
    bill(site, made)
    page = run_page(site, made)
    assert "2 chip-hours, at most 2 USD" in page
    assert '<rect class="step" x="10.0" y="0" width="80.0"' in page
    assert "compile 10.0%, 12.0 min" in page


def test_all_runs_are_summed_up_by_lineage_and_week(site: Site) -> None:
    assert "No TPU was billed" in site.get("/spending")
    for name, outcome in ("1", OutcomeKind.PROMOTED), ("2", OutcomeKind.REJECTED):
        made = finished(site, name)
        bill(site, made, on_demand_price_per_chip_hour=2.5)
        outcomes.record(made.run, outcome, "judged", written_by="promote")
    page = site.get("/spending")
    week = f"{datetime.now(UTC):%G-W%V}"
    assert f"<td>{week}</td>" in page
    assert '<td class="n">4.00</td><td class="n">80.0%</td>' in page
    assert '<td class="n">6.00</td>\n<td class="n">1</td><td class="n">4.00</td>' in page
    assert "compile 10.0%" in page
    assert "Money is estimated at " in page
    assert f"<td>{week}</td>" in site.get("/spending", since="0001-01-01")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert "No TPU was billed" in site.get("/spending", since=f"{tomorrow:%F}")
    # A form whose date was cleared asks for the last weeks.
    assert site.get("/spending", since="") == site.get("/spending")
    assert site.status("/spending", since="yesterday") == 422


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("/models", {"lineage": "<b>"}, 404, "There is no such lineage in the store."),
        ("/spending", {"since": "<b>"}, 422, "since: Input should be"),
        ("/card", {}, 422, "lineage: Field required; version: Field required"),
        ("/nowhere", {}, 404, "Nothing matches the given URI"),
        ("/docs/guides/nowhere.html", {}, 404, 'href="/repretraining/style.css"'),
    ],
)
def test_an_address_that_leads_nowhere_is_answered_by_a_page(
    site: Site, path: str, query: dict[str, str], status: int, said: str
) -> None:
    answer = site.client.get(path, params=query)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert said in answer.text
    assert "<b>" not in answer.text


@pytest.mark.parametrize(
    ("points", "x", "y"),
    [
        ([(1.0, 9.1)], ["1"], None),
        ([(1.0, 9.1), (2.0, 9.0)], ["1", "2"], None),
        ([(0.0, 1e7), (1.0, 1e7 + 300)], None, None),
        ([(0.0, 0.5), (1.0, 1.5)], None, ["0.6", "0.8", "1.0", "1.2", "1.4"]),
        ([(0.0, 123.4561), (1.0, 123.4563)], None, [f"123.45{n}" for n in (58, 60, 62, 64, 66)]),
    ],
)
def test_numbers_on_an_axis_can_be_told_apart(
    points: list[tuple[float, float]], x: list[str] | None, y: list[str] | None
) -> None:
    chart = line_chart("a title", "step", "nats", [Series("a", "a", points)])
    assert chart is not None
    for ticks, expected in ((chart.x_ticks, x), (chart.y_ticks, y)):
        labels = [tick.label for tick in ticks]
        assert len(set(labels)) == len(labels)
        assert expected is None or labels == expected


def test_several_lineages_are_listed_first(site: Site) -> None:
    made = finished(site, "1")
    publish(made)
    assert "All lineages" not in site.get("/models")
    other = site.store.lineage("other")
    for place in ("production", "vocabulary_info"):
        uris.write(getattr(other, place), uris.read(getattr(made.lineage, place)))
    page = site.get("/models")
    table = page.partition("<h2>All lineages</h2>")[2].partition("</section>")[0]
    assert '<a href="models?lineage=other">other</a>' in table
    assert table.count(made.version_id) == 2
    assert "Below: default" in table
    assert '<a href="models">All lineages</a>' in site.get("/models", lineage="other")
    uris.write(made.run.reservation(1).ledger, b"no json")
    assert "Files that cannot be read" in site.get("/spending")


def test_a_damaged_file_is_named_and_the_rest_is_shown(site: Site) -> None:
    made = finished(site, "1")
    uris.write(made.run.outcome, b"not json")
    page = run_page(site, made)
    assert "Files that cannot be read" in page
    assert "outcome.json is not a stored file" in page
    assert "400 steps" in page


def test_what_people_write_is_no_html(site: Site) -> None:
    made = finished(site, "1")
    outcomes.record(
        made.run, OutcomeKind.FAILED, "<script>alert(1)</script>", written_by="<img src=x>"
    )
    plan = RunPlan.load(made.run.plan)
    plan.model_copy(update={"not_replayed": {"<i>": "<u>"}}).write(made.run.plan)
    page = run_page(site, made)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    other = site.get("/run", dag_id='"><script>x</script>', run_id="<b>")
    assert "<script>x" not in other
    assert "<b>" not in other


def test_pages_load_nothing_from_elsewhere(site: Site) -> None:
    made = finished(site, "1")
    publish(made)
    for path, query in (("/run", {"dag_id": DAG_ID, "run_id": "1"}), ("/models", {})):
        answer = site.client.get(path, params=query)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "http://" not in answer.text
        assert "https://" not in answer.text
        assert "style=" not in answer.text
    assert {site.status(f"/{name}") for name in routes.STATIC} == {200}


def test_models_lists_versions_newest_first(site: Site) -> None:
    first = finished(site, "1")
    publish(first)
    second = finished(site, "2", parent=first.version_id)
    publish(second, first.version_id)
    page = site.get("/models")
    table = page[page.index("<h2>Versions</h2>") : page.index("<h2>Newest alerts</h2>")]
    assert table.index(second.version_id) < table.index(first.version_id)
    assert '<span class="badge good">in use</span>' in table
    # What the rollback form is filled in with, for the one that is not in use.
    assert f"&#34;version&#34;: &#34;{first.version_id}&#34;" in table
    assert f"&#34;version&#34;: &#34;{second.version_id}&#34;" not in table
    assert 'href="/dags/model_rollback"' in page
    registry.rollback(first.lineage, first.version_id, reason="<bad>", by="<ada>")
    page = site.get("/models", lineage="default")
    assert "Rolled back by &lt;ada&gt;." in page
    assert '<span class="badge bad">rolled back</span>' in page
    assert "&lt;bad&gt;" in page


def test_models_says_who_works_on_the_lineage(site: Site) -> None:
    made = finished(site, "1")
    expires = datetime.now(UTC) + timedelta(hours=1)

    def claim(record: RunRecord) -> None:
        lease.acquire(
            made.lineage, record, expires=expires, poll_seconds=1, has_ended=lambda _: False
        )

    record = RunRecord.load(made.run.record)
    claim(record)
    later = {"run_key": "b" * 12, "run_id": "later", "partition": "2026-09-09"}
    claim(record.model_copy(update=later))
    page = site.get("/models")
    assert "The lineage is held by run day-1 of dag" in page
    assert "its lease expires at" in page
    assert ">2026-09-09</a>" in page
    assert "No model is in use" in page


def test_an_outcome_leads_to_the_explanation_of_its_error(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    outcomes.record(made.run, OutcomeKind.FAILED, "[stockout] None of us-a has one", written_by="x")
    link = 'href="/repretraining/docs/operate/errors.html#stockout"'
    monkeypatch.setattr(routes, "SITE", tmp_path)
    assert link in run_page(site, made)
    monkeypatch.setattr(routes, "SITE", tmp_path / "not built")
    assert link not in run_page(site, made)


def test_models_shows_the_newest_alerts_and_what_of_them_is_over(site: Site) -> None:
    made = finished(site, "1")
    Alert(
        scope=made.key, cause="rejected", title="<run> rejected", reason="<b> worse", time=NOW
    ).write(site.store.alert(made.key, "rejected"))
    page = site.get("/models")
    for said in ("<run> rejected", "<b> worse", ADVICE[Cause.REJECTED]):
        assert escape(said) in page
    assert "cleared" not in page
    AlertCleared(time=NOW).create(site.store.alert_cleared(made.key, "rejected"))
    assert "over since 2026-01-31 12:00 UTC" in site.get("/models")


def test_models_shows_no_alert_of_another_lineage(site: Site) -> None:
    made = finished(site, "1")
    for cause, lineage_id in (("rejected", "default"), ("failed", "other"), ("reaper", None)):
        Alert(
            scope=made.key,
            cause=cause,
            title=f"about {lineage_id}",
            reason="worse",
            time=NOW,
            lineage_id=lineage_id,
        ).write(site.store.alert(made.key, cause))
    page = site.get("/models")
    assert "about default" in page
    assert "about None" in page
    assert "about other" not in page


def rent(made: FinishedRun) -> None:
    """Let a run have a TPU for an hour, of 8 chips at 1.20 each."""
    uris.write(made.run.config, CONFIG.to_bytes())
    reservation = reserve(
        made.store, made.run.root, project_id="p", owner="o", bundle_sha256="0" * 64
    )
    dear = {"accelerator_type": "v5litepod-8", "price_per_chip_hour": 1.2}
    reservation.record.model_copy(update=dear).write(reservation.layout.record)
    record = reservation.new_attempt(1, "us-central1-a").mark_asked()
    earlier = datetime.now(UTC) - timedelta(hours=1)
    record.attempt.model_copy(update={"created": earlier}).write(record.layout.record)
    record.mark(AttemptEvent.READY, workers=1, node_created=earlier)


def test_a_paused_dag_with_a_tpu_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = finished(site, "1")
    rent(made)
    assert "paused" not in run_page(site, made)
    monkeypatch.setattr(routes, "is_paused", lambda dag_id: dag_id == DAG_ID)
    page = run_page(site, made)
    assert '<span class="badge wait">paused</span>' in page
    assert f'Nothing will go on until <a target="_top" href="/dags/{DAG_ID}">' in page
    assert "A TPU is rented</b> since" in page
    assert "at most 9.60 USD so far" in page


def test_a_tpu_that_was_reaped_is_not_rented(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = finished(site, "1")
    rent(made)
    reservation = open_reservation(made.run.root)
    write_bill(reservation, reservation.attempt(1), reaped="it was released")
    monkeypatch.setattr(routes, "is_paused", lambda _dag_id: True)
    page = run_page(site, made)
    assert "A TPU is rented</b>" not in page
    assert "reaped: it was released" in page


def test_models_says_that_the_run_at_work_is_paused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    rent(made)
    monkeypatch.setattr(routes, "is_paused", lambda dag_id: dag_id == DAG_ID)
    assert "The DAG is paused" not in site.get("/models")
    expires = datetime.now(UTC) + timedelta(hours=1)
    record = RunRecord.load(made.run.record)
    lease.acquire(made.lineage, record, expires=expires, poll_seconds=1, has_ended=lambda _: False)
    page = site.get("/models")
    assert "The DAG is paused" in page
    assert "at most 9.60 USD so far" in page


def test_a_paused_dag_without_a_tpu_is_said_and_of_an_ended_run_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    monkeypatch.setattr(routes, "is_paused", lambda _dag_id: True)
    assert "No TPU is rented meanwhile" in run_page(site, made)
    outcomes.record(made.run, OutcomeKind.REJECTED, "worse", written_by="judge")
    assert "paused" not in run_page(site, made)


def test_an_empty_store_has_pages_too(site: Site) -> None:
    assert "No model is in use" in site.get("/models")


def test_the_data_report_runs_no_script(site: Site) -> None:
    made = finished(site, "1")
    uris.write(made.manifest_uri.removesuffix(".json") + ".html", b"<h1>words</h1>")
    query = {"dag_id": DAG_ID, "run_id": "1", "partition": made.partition}
    page = site.get("/data-report", **query)
    assert "words" not in page
    assert f'sandbox src="data-report-text?dag_id={DAG_ID}&amp;run_id=1&amp;partition=' in page
    assert f'<a href="run?dag_id={DAG_ID}&amp;run_id=1">' in page
    answer = site.client.get("/data-report-text", params=query)
    assert answer.text == "<h1>words</h1>"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/card", {"lineage": "../runs", "version": "x"}),
        ("/card", {"lineage": "default", "version": "../../../runs"}),
        ("/card", {"lineage": "default", "version": "v-000000000000"}),
        ("/models", {"lineage": "../.."}),
        ("/models", {"lineage": "unknown"}),
        ("/data-report", {"dag_id": DAG_ID, "run_id": "1", "partition": "../../x"}),
        ("/data-report", {"dag_id": DAG_ID, "run_id": "../..", "partition": "1"}),
    ],
)
def test_what_the_store_does_not_know_is_not_found(
    site: Site, path: str, query: dict[str, str]
) -> None:
    publish(finished(site, "1"))
    assert site.status(path, **query) == 404


def test_few_labels_and_many_points_make_a_readable_line() -> None:
    points = [(float(n), float(n % 7)) for n in range(10_000)]
    chart = line_chart("t", "x", "y", [Series("s", "a", points)])
    assert chart is not None
    assert chart.lines[0].path.count("L") <= 401
    assert 2 <= len(chart.x_ticks) <= 8
    assert 2 <= len(chart.y_ticks) <= 8


@pytest.mark.parametrize(
    ("row", "style"),
    [
        (("x", 0.2, 0.1, 0.3), "good"),
        (("x", -0.2, -0.3, -0.1), "bad"),
        (("x", 0.1, -0.1, 0.3), "none"),
        (("x", 0.1, None, None), "good"),
        (("x", -0.1, None, None), "bad"),
    ],
)
def test_a_difference_is_called_better_only_if_its_whole_interval_is(
    row: tuple[str, float, float | None, float | None], style: str
) -> None:
    chart = interval_chart([row])
    assert chart is not None
    assert chart.bars[0].style == style


@pytest.mark.parametrize(
    ("seconds", "text"), [(15.2, "15 s"), (119, "119 s"), (300, "5.0 min"), (9000, "2.5 h")]
)
def test_a_length_of_time_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert formatting.duration(seconds) == text


def test_a_reason_is_said_once(site: Site) -> None:
    made = finished(site, "1")
    reason = Verdict.load(made.run.verdict(None)).reason
    assert run_page(site, made).replace("&#39;", "'").count(reason) == 1
    outcomes.record(made.run, OutcomeKind.REJECTED, f"rejected: {reason}", written_by="judge")
    page = run_page(site, made).replace("&#39;", "'")
    assert page.count(reason) == 1
    assert f"<p>Rejected: {reason}</p>" in page


def test_one_point_and_no_point_can_be_drawn() -> None:
    assert line_chart("t", "x", "y", [Series("s", "a", [])]) is None
    assert line_chart("t", "x", "y", [Series("s", "a", [(1.0, float("nan"))])]) is None
    chart = line_chart("t", "x", "y", [Series("s", "a", [(3.0, 2.0)])], x_names=["a", "b"])
    assert chart is not None
    assert chart.lines[0].path.startswith("M")


def test_zero_is_always_in_the_drawing_of_differences() -> None:
    chart = interval_chart([("a", 0.5, 0.4, 0.6), ("b", 0.7, None, None)])
    assert chart is not None
    assert all(bar.place > chart.zero for bar in chart.bars)
    assert interval_chart([("a", float("nan"), None, None)]) is None


def test_models_shows_a_lineage_that_there_is(site: Site) -> None:
    info = finished(site, "1").lineage.vocabulary_info
    uris.copy(info, site.store.lineage("statutes").vocabulary_info)
    page = site.get("/models")
    assert "Models of lineage default" in page
    assert '<a href="models?lineage=statutes">statutes</a>' in page
    uris.delete(info)
    assert "Models of lineage statutes" in site.get("/models")


def test_parts_of_a_bar_are_side_by_side() -> None:
    bar = share_bar([("a", "x", 1.0), ("b", "y", 3.0)])
    assert bar is not None
    assert [(part.place, part.width) for part in bar.parts] == [(0.0, 25.0), (25.0, 75.0)]
    assert share_bar([]) is None
    assert share_bar([("a", "x", 0.0)]) is None


def test_one_point_is_a_dot_and_noise_is_level() -> None:
    alone = line_chart("t", "x", "y", [Series("a", "a", [(1.0, 3.5)])])
    assert alone is not None
    assert len(alone.lines[0].dots) == 1
    level = line_chart("t", "x", "y", [Series("a", "a", [(0, 3.3193), (1, 3.31930001)])])
    assert level is not None
    labels = [tick.label for tick in level.y_ticks]
    assert len(set(labels)) == len(labels) > 1
    bars = interval_chart([("noise", 2e-5, 1e-5, 3e-5), ("gain", 0.5, 0.4, 0.6)])
    assert bars is not None
    assert [bar.style for bar in bars.bars] == ["none", "good"]


@pytest.mark.parametrize(("value", "text"), [(-1e-9, "0.0000"), (-0.5, "-0.5000")])
def test_no_loss_is_less_than_nothing_by_rounding(value: float, text: str) -> None:
    assert formatting.loss(value) == text
