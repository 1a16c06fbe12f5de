"""A person's way: log in, fill in the trigger form, see the run succeed. In a real Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from pipeline_store import uris
from tests.stack.driver import DAG_ID, TINY, Pipeline, until

pytestmark = [pytest.mark.stack, pytest.mark.browser]

# Debian's Chromium, kept from looking for its maker's services; it cannot sandbox itself as root.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture
def page(pipeline: Pipeline) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=ARGUMENTS, headless=True
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(pipeline.api.base_url)
        page.get_by_role("textbox").first.fill("admin")
        page.locator("input[type=password]").fill(pipeline.stack.password())
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda url: "login" not in url)
        yield page
        browser.close()


def test_a_run_triggered_from_the_form_succeeds(pipeline: Pipeline, page: Page) -> None:
    known = {run.run_id for run in pipeline.api.runs(DAG_ID)}
    page.goto(f"{pipeline.api.base_url}/dags/{DAG_ID}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    form.wait_for()
    # The sections of the schema are the sections of the form.
    for section in ("corpus", "masking", "training", "tpu"):
        form.get_by_text(section, exact=True).first.wait_for()
    form.get_by_role("button", name="training", exact=True).click()
    steps = form.locator('[name="element_training.train_steps"]').first
    steps.fill("40")
    form.get_by_role("button", name="Advanced Options").click()
    editor = form.locator(".cm-content").first
    text = editor.inner_text()
    conf = json.loads(text)
    assert conf["training.train_steps"] == 40
    conf |= TINY | {
        "training.train_steps": 40,
        "corpus.partition": "2026-01-01",
        "model.lineage_id": "from-the-form",
    }
    editor.fill(json.dumps(conf))
    form.get_by_role("button", name="Trigger").click()
    run_id = until(
        lambda: next((r.run_id for r in pipeline.api.runs(DAG_ID) if r.run_id not in known), None),
        name="the run",
    )
    assert pipeline.finish(run_id)[0] == "success"
    stored = json.loads(uris.read(pipeline.run(run_id).config))
    assert stored["training"]["train_steps"] == 40
    page.goto(f"{pipeline.api.base_url}/dags/{DAG_ID}/runs/{run_id}")
    page.get_by_text("promotion", exact=False).first.wait_for()
    pipeline.assert_nothing_left()
