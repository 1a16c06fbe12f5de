"""The tab *Model* of a fine-tuning run: its trials, scores and money."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from model_registry import registry
from pages import routes
from pipeline_store import uris
from pipeline_store.formats import (
    FileDigest,
    FinetuningReport,
    MetricSummary,
    ModelComparison,
    PaidVerdict,
    Reservation,
    TaskSplit,
    TaskSummary,
    TrialResult,
    TrialScores,
)
from tests.model_registry.finetunings import FinetuningRun
from tests.model_registry.retained import promoted
from tests.model_registry.runs import NOW, FinishedRun
from tests.model_registry.smaller_models import TRIAL, put_child
from trained_models import metric_files
from trained_models.metric_files import MetricFiles

SENTENCE = "On weather re-pretraining helped: 0.91 instead of 0.85."


class Site:
    """The pages over a store, without Airflow's login."""

    def __init__(self) -> None:
        app = routes.application.__wrapped__()
        for login in (routes.may_read_runs, routes.may_read_models):
            app.dependency_overrides[login.dependency] = lambda: None
        self.client = TestClient(app)

    def get(self, path: str, **more: str) -> str:
        query = {"dag_id": routes.FINETUNING_DAG, "run_id": "1"} | more
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    monkeypatch.setenv("REPRETRAIN_STORE_URI", str(tmp_path))
    monkeypatch.setenv("REPRETRAIN_PRESET", "smoke")
    monkeypatch.setattr(routes, "is_paused", lambda _dag_id: False)
    return Site()


@pytest.fixture
def run(tmp_path: Path) -> FinetuningRun:
    store = promoted(str(tmp_path), "1").store
    settings = {"finetuning__random_seeds": [1, 2], "finetuning__parallel_tpus": 2}
    return FinetuningRun(store, "1", **settings)


def score(run: FinetuningRun, number: int, accuracy: float) -> None:
    trial = run.plan.trials[number]
    scores = TrialScores(
        examples=40,
        loss=0.3,
        metrics={"accuracy": accuracy},
        predictions=FileDigest(path="p", bytes=1, sha256="0" * 64),
    )
    TrialResult(
        trial=trial,
        task_manifest_sha256="m",
        encoder=run.plan.models["model"],
        settings={},
        train_examples=160,
        train_steps=50,
        train_steps_total=60,
        train_loss=0.2,
        weights_sha256="w",
        resumed_from=[20],
        seconds=12.0,
        examples_per_second=80.0,
        scores={TaskSplit.VALIDATION: scores, TaskSplit.TEST: scores},
    ).write(run.run.trial(trial.trial_id).result)


def rent(run: FinetuningRun, tpu: int) -> None:
    folder = run.rentals[tpu]
    Reservation(
        run_key=folder.root.rpartition("/")[2],
        generation=1,
        project_id="project",
        zones=["zone"],
        owner="owner",
        dag_id="bert_finetuning",
        accelerator_type="v5litepod-1",
        bundle_sha256="0" * 64,
        created=NOW,
        expires_at=NOW + timedelta(hours=1),
        delete_grace_seconds=1,
        price_per_chip_hour=1.2,
        currency="USD",
        price_date="2026-01-01",
    ).write(folder.reservation(1).record)


def test_trials_are_shown_as_far_as_they_are(site: Site, run: FinetuningRun) -> None:
    score(run, 0, 0.9125)
    rent(run, 1)
    page = site.get("/run")
    assert "Trials: 1 of 2 done" in page
    assert "weather.model.0.001.1" in page
    assert "resumed from 20" in page
    assert "0.9125" in page
    assert "not begun yet" in page
    assert "Said when all trainings are done." in page
    assert "0 chip-hours, at most 0 USD" in page
    assert run.plan.models["model"].version_id in page


def test_a_finished_run_shows_whether_it_paid(site: Site, run: FinetuningRun) -> None:
    for number, accuracy in enumerate((0.9, 0.92)):
        score(run, number, accuracy)
    summary = TaskSummary(
        task="weather",
        model="model",
        learning_rate=1e-3,
        random_seeds=[1, 2],
        best_trial=run.plan.trials[1].trial_id,
        metrics={"accuracy": MetricSummary(mean=0.91, deviation=0.0141, values=[0.9, 0.92])},
        validation={},
        majority={"accuracy": 0.5},
    )
    comparison = ModelComparison(
        task="weather",
        reference="start",
        metric="accuracy",
        examples=40,
        seeds=2,
        model_mean=0.91,
        reference_mean=0.85,
        difference=0.06,
        low=0.02,
        high=0.1,
        confidence=0.95,
        verdict=PaidVerdict.HELPED,
        sentence=SENTENCE,
    )
    run.end()
    FinetuningReport(
        run_key=run.key,
        models=run.plan.models,
        tasks=[summary],
        comparisons=[comparison],
        created=NOW,
    ).write(run.run.training_summary)
    page = site.get("/run")
    assert "<h2>Outcome: completed</h2>" in page
    assert SENTENCE in page
    assert "0.9100" in page
    assert "0.0141" in page
    assert "0.5000" in page
    uris.write(run.run.training_page, b"<html>the report</html>")
    assert "training-summary?dag_id=bert_finetuning" in page
    assert "the report</html>" not in site.get("/training-summary")
    assert site.get("/training-summary-text") == "<html>the report</html>"


def test_a_damaged_file_is_named_and_hides_nothing_else(site: Site, run: FinetuningRun) -> None:
    uris.write(run.run.trial(run.plan.trials[0].trial_id).result, b"damaged")
    page = site.get("/run")
    assert "Files that cannot be read" in page
    assert "weather.model.0.001.2" in page


def test_a_run_without_a_report_has_no_page_of_it(site: Site, run: FinetuningRun) -> None:
    query = {"dag_id": routes.FINETUNING_DAG, "run_id": run.run.root}
    assert site.client.get("/training-summary", params=query).status_code == 404


def test_smaller_models_are_shown_and_a_rollback_changes_which_are_in_use(
    site: Site, run: FinetuningRun
) -> None:
    assert "Smaller models" not in site.get("/run")
    old = FinishedRun(run.store.root, "1")
    put_child(old, run.key)
    put_child(old, run.key, name="trim", accepted=False, reasons=["It has 9.00 MB."], folder="")
    layout = run.run.children(TRIAL)
    uris.write(layout.page, b"<html>the table</html>")
    page = site.get("/run")
    assert "accepted, of the version in use" in page
    assert "refused: It has 9.00 MB." in page
    assert f"children?dag_id=bert_finetuning&amp;run_id=1&amp;trial={TRIAL}" in page
    trial = {"trial": TRIAL}
    assert "children-text?dag_id" in site.get("/children", **trial)
    assert site.get("/children-text", **trial) == "<html>the table</html>"
    for other in (f"{TRIAL}2", f"../children/{TRIAL}", "*"):
        query = {"dag_id": routes.FINETUNING_DAG, "run_id": "1", "trial": other}
        assert site.client.get("/children-text", params=query).status_code == 404

    promoted(run.store.root, "2", parent=old.version_id)
    assert "accepted, of a version that is not in use" in site.get("/run")
    registry.rollback(old.lineage, old.version_id, reason="a test")
    assert "accepted, of the version in use" in site.get("/run")


def test_a_run_that_has_just_begun_is_told_so(site: Site) -> None:
    assert "left nothing in the store yet" in site.get("/run")


def test_a_paused_dag_says_so(
    site: Site, run: FinetuningRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "paused" not in site.get("/run")
    monkeypatch.setattr(routes, "is_paused", lambda dag_id: dag_id == routes.FINETUNING_DAG)
    page = site.get("/run")
    assert '<span class="badge wait">paused</span>' in page
    assert "The DAG is paused" in page


def test_a_trial_that_is_trained_shows_how_far_it_is(site: Site, run: FinetuningRun) -> None:
    trial = run.plan.trials[0]
    metrics = MetricFiles(run.run.trial(trial.trial_id).training.metrics)
    metrics.add(metric_files.START, 0, train_steps=60)
    said = {"loss": 0.4321, "tokens_per_second": 1500.0, "steps_per_second": 2.0}
    metrics.add(metric_files.LOOP, 20, **said)
    metrics.publish()
    page = site.get("/run")
    row = page[page.index(f"<code>{trial.trial_id}</code>") :].split("</tr>")[0]
    assert "under way" in row
    assert "20 of 60" in row
    assert "20 s left" in row
    assert "loss 0.4321, 1,500 tokens/s" in row
    assert "data-refresh" in page
