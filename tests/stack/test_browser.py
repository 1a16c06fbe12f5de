"""A person's way through Airflow's pages, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from local.demo import browser
from pipeline_config import FinetuningConfig, load_preset, parse_config, with_overrides
from pipeline_config.finetuning import RecipeConfig
from pipeline_config.requests import form_sections
from pipeline_store import uris
from pipeline_store.formats import Answer, ProductionPointer, RunApproval, Verdict
from tests.stack.driver import DAG_ID, RUN_SECONDS, TINY, Pipeline, until

# One test makes up to two whole runs.
pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1200)]

# Airflow's pages are slow on a machine that trains at the same time.
expect.set_options(timeout=browser.PATIENCE_MS)

ROLLBACK, FINETUNING = "model_rollback", "bert_finetuning"
FIRST, SECOND = "2026-01-01", "2026-01-02"


@pytest.fixture
def page(pipeline: Pipeline) -> Iterator[Page]:
    url, password = pipeline.api.base_url, pipeline.stack.password()
    with browser.logged_in(url, "admin", password) as page:
        yield page


def new_run(pipeline: Pipeline, dag_id: str, known: set[str]) -> str:
    """Return the run that is not among those known before."""
    run_id: str = until(
        lambda: next((r.run_id for r in pipeline.api.runs(dag_id) if r.run_id not in known), None),
        name=f"a run of {dag_id}",
    )
    return run_id


def run_ids(pipeline: Pipeline, dag_id: str) -> set[str]:
    return {run.run_id for run in pipeline.api.runs(dag_id)}


def test_a_run_triggered_from_the_form_succeeds(pipeline: Pipeline, page: Page) -> None:
    known = run_ids(pipeline, DAG_ID)
    form = browser.open_trigger_form(page, pipeline.api.base_url, DAG_ID)
    wanted = TINY | {
        "corpus.partition": FIRST,
        "model.lineage_id": "from-the-form",
        "training.train_steps": 40,
        # A choice, a number that may be absent, and a switch.
        "corpus.duplicates": "near",
        "masking.unit": "word",
        "masking.extra_max_seq_length": 32,
        "masking.dynamic": True,
    }
    browser.fill_in_settings(page, form, wanted)
    browser.submit(form)
    run_id = new_run(pipeline, DAG_ID, known)
    assert pipeline.finish(run_id)[0] == "success"
    run = pipeline.run(run_id)
    stored = parse_config(uris.read(run.config), run.config)
    assert stored == with_overrides(load_preset("smoke"), wanted)
    page.goto(f"{pipeline.api.base_url}/dags/{DAG_ID}/runs/{quote(run_id, safe='')}")
    page.get_by_role("link", name="Model", exact=True).click()
    shown = browser.plugin_frame(page, "Model")
    verdict = Verdict.load(run.verdict(None))
    expect(shown.get_by_role("heading", name="Verdict")).to_contain_text(verdict.verdict)
    expect(shown.get_by_text("40 steps")).to_be_visible()
    expect(shown.get_by_role("img", name="Masked-LM loss while training")).to_be_visible()
    pipeline.assert_nothing_left()


def backfilled(pipeline: Pipeline) -> set[str]:
    return {run.run_id for run in pipeline.api.runs(DAG_ID) if run.run_type == "backfill"}


def test_a_backfill_from_the_dialog_is_counted_first(pipeline: Pipeline, page: Page) -> None:
    form = browser.open_trigger_form(page, pipeline.api.base_url, DAG_ID)
    browser.choose_backfill(page, form, FIRST, SECOND)
    expect(form.get_by_text("2 runs will be triggered.")).to_be_visible()
    assert backfilled(pipeline) == set()
    # Checked and estimated only.
    browser.use_settings(form)
    browser.fill_in_settings(page, form, {"run.dry_run": True})
    form.get_by_role("button", name="Run Backfill").click()
    until(lambda: len(backfilled(pipeline)) == 2, name="two runs")
    for run_id in backfilled(pipeline):
        assert pipeline.finish(run_id)[0] == "success"
        assert pipeline.task(run_id, "validate").state == "skipped"
        assert not uris.exists(pipeline.run(run_id).plan)


def test_a_person_approves_a_model_and_later_rolls_it_back(pipeline: Pipeline, page: Page) -> None:
    url, lineage = pipeline.api.base_url, pipeline.store.lineage("asked")
    pipeline.finish(pipeline.trigger(FIRST, "asked"))
    before = ProductionPointer.load(lineage.production).version_id
    run_id = pipeline.trigger(
        SECOND,
        "asked",
        promotion__require_approval=True,
        promotion__max_forgetting=10.0,
        training__train_steps=120,
    )
    pipeline.wait_for_question(run_id)
    # Nothing is held while a person thinks.
    until(lambda: pipeline.task(run_id, "tpu.delete").state == "success", name="no TPU")
    pipeline.assert_nothing_left()
    browser.open_question(page, url, DAG_ID, run_id, "promotion.approve")
    browser.respond(page, "Approve")
    state, tasks = pipeline.finish(run_id)
    assert (state, tasks["promotion.promote"]) == ("success", "success")
    answered = RunApproval.load(pipeline.run(run_id).approval)
    assert (answered.answer, answered.answered_by) == (Answer.APPROVED, "admin")
    after = ProductionPointer.load(lineage.production).version_id
    assert after != before

    page.goto(f"{url}/dags/{DAG_ID}/runs/{quote(run_id, safe='')}/plugin/model")
    shown = browser.plugin_frame(page, "Model")
    expect(shown.get_by_role("heading", name="Approval: approved")).to_be_visible()
    shown.get_by_role("link", name="asked", exact=True).click()
    expect(shown.get_by_role("heading", name="Models of lineage asked")).to_be_visible()

    page.goto(f"{url}/plugin/models")
    shown = browser.plugin_frame(page, "Models")
    browser.choose_lineage(shown, "asked")
    shown.get_by_role("link", name="Roll back").click()
    # The whole window goes there, not only the frame.
    page.wait_for_url(f"{url}/dags/{ROLLBACK}**")
    known = run_ids(pipeline, ROLLBACK)
    form = browser.open_trigger_form(page, url, ROLLBACK)
    browser.fill_in(page, form, "lineage", "asked")
    browser.fill_in(page, form, "reason", "answers got worse")
    browser.submit(form)
    rollback = new_run(pipeline, ROLLBACK, known)
    assert pipeline.api.wait_for_run(ROLLBACK, rollback, seconds=300).state == "success"
    pointer = ProductionPointer.load(lineage.production)
    assert (pointer.version_id, pointer.rolled_back) == (before, [after])
    assert pointer.reason == "answers got worse"
    page.goto(f"{url}/repretraining/models?lineage=asked")
    expect(page.get_by_role("row", name=f"{after} rolled back")).to_be_visible()
    expect(page.get_by_role("row", name=f"{before} in use")).to_be_visible()


def test_a_person_rejects_a_model(pipeline: Pipeline, page: Page) -> None:
    run_id = pipeline.trigger(FIRST, "refused", promotion__require_approval=True)
    pipeline.wait_for_question(run_id)
    browser.open_question(page, pipeline.api.base_url, DAG_ID, run_id, "promotion.approve")
    browser.respond(page, "Reject")
    _, tasks = pipeline.finish(run_id)
    assert tasks["promotion.approve"] == tasks["promotion.promote"] == "skipped"
    assert not uris.exists(pipeline.store.lineage("refused").production)
    page.goto(f"{pipeline.api.base_url}/dags/{DAG_ID}/runs/{quote(run_id, safe='')}/plugin/model")
    shown = browser.plugin_frame(page, "Model")
    expect(shown.get_by_text("admin rejected the candidate")).to_be_visible()


def test_the_form_of_fine_tuning_explains_itself_and_what_cannot_work_is_refused(
    pipeline: Pipeline, page: Page
) -> None:
    api = pipeline.api
    api.wait_for_dag(FINETUNING)
    known, before = run_ids(pipeline, FINETUNING), pipeline.calls("CreateQueuedResource")
    form = browser.open_trigger_form(page, api.base_url, FINETUNING)
    for title in form_sections(FinetuningConfig, ()):
        expect(form.get_by_role("button", name=title, exact=True)).to_be_visible()
    help_text = form.get_by_text(str(RecipeConfig.model_fields["source_run"].description))
    expect(help_text).to_be_hidden()
    browser.open_section(form, "advanced: finetuning")
    expect(help_text).to_be_visible()
    # Each field by itself is right.
    browser.fill_in(page, form, "finetuning.mode", "predict")
    browser.submit(form)
    run_id = new_run(pipeline, FINETUNING, known)
    api.unpause(FINETUNING)
    try:
        assert api.wait_for_run(FINETUNING, run_id, seconds=RUN_SECONDS).state == "failed"
    finally:
        api.pause(FINETUNING)
    page.goto(f"{api.base_url}/dags/{FINETUNING}/runs/{quote(run_id, safe='')}/tasks/validate")
    reason = "finetuning.source_run: mode predict uses the models of another fine-tuning run"
    expect(page.get_by_text(reason).first).to_be_visible()
    assert pipeline.calls("CreateQueuedResource") == before
