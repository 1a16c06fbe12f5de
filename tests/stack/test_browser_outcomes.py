"""Refused, rejected, ended by a person: what Airflow's lists and our pages show, in a Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from local.demo import browser
from tests.stack.driver import DAG_ID, Pipeline
from tests.stack.story import FIRST

# One test makes three runs.
pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1800)]

expect.set_options(timeout=browser.PATIENCE_MS)

LINEAGE = "came-to-nothing"


@pytest.fixture
def page(pipeline: Pipeline) -> Iterator[Page]:
    with browser.logged_in(pipeline.api.base_url, "admin", pipeline.stack.password()) as page:
        yield page


def test_what_came_of_runs_stands_where_people_look(pipeline: Pipeline, page: Page) -> None:
    url, api = pipeline.api.base_url, pipeline.api
    wrong = {"tpu__accelerator_type": "v5litepod-9", "optimizer__warmup_steps": 999}
    refused = pipeline.trigger(FIRST, LINEAGE, **wrong)
    assert pipeline.finish(refused)[0] == "failed"
    page.goto(f"{url}/dags/{DAG_ID}/runs/{quote(refused, safe='')}/plugin/model")
    shown = browser.plugin_frame(page, "Model")
    expect(shown.get_by_role("heading", name="Refused before anything was spent")).to_be_visible()
    reasons = shown.get_by_role("listitem")
    expect(reasons.filter(has_text="optimizer.warmup_steps")).to_have_count(1)
    expect(reasons.filter(has_text="v5litepod-9").first).to_be_visible()

    # A model that has learned nothing is no better than guessing by frequency.
    nothing = {"training__train_steps": 1, "optimizer__learning_rate": 1e-9}
    rejected = pipeline.trigger(FIRST, LINEAGE, optimizer__warmup_steps=0, **nothing)
    assert pipeline.finish(rejected)[0] == "success"
    ended = pipeline.trigger(FIRST, LINEAGE, training__train_steps=4000)
    pipeline.wait_for_checkpoint(ended)
    api.mark_run(DAG_ID, ended, "failed")
    assert pipeline.finish(ended)[0] == "failed"

    page.goto(f"{url}/dags/{DAG_ID}/runs")
    for run_id, state, note in (
        (rejected, "Success", "Rejected: "),
        (ended, "Failed", "ended by admin"),
        (refused, "Failed", "Refused: "),
    ):
        row = page.get_by_role("row").filter(has_text=run_id)
        expect(row).to_contain_text(state)
        row.get_by_role("button", name="Note", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text(note)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)

    page.goto(f"{url}/repretraining/models?lineage={LINEAGE}")
    expect(page.get_by_role("heading", name="Partitions not learned")).to_be_visible()
    tried = page.get_by_role("heading", name="Rejected, failed and refused runs").locator("..")
    rows = tried.get_by_role("row")
    expect(rows).to_have_count(4)  # with that of the headings
    expect(rows.nth(1)).to_contain_text("ended by admin in Airflow")
