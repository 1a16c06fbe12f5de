"""A person's way: log in, fill in the trigger form, see the run succeed. In a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, sync_playwright

from pipeline_config import PipelineConfig, load_preset, parse_config, with_overrides
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


def fill_in(page: Page, form: Locator, name: str, value: Any) -> None:
    """Give a setting a value, as each kind of field wants it."""
    field = form.locator(f'[name="element_{name}"]')
    kind = field.get_attribute("type")
    if kind == "hidden":
        form.locator(f'[id="element_{name}"]').click()
        page.get_by_role("option", name=value, exact=True).click()
    elif kind == "checkbox":
        # What is seen is a switch that is drawn over it.
        if field.is_checked() != value:
            field.dispatch_event("click")
    else:
        field.fill(str(value))
        field.press("Tab")


def test_a_run_triggered_from_the_form_succeeds(pipeline: Pipeline, page: Page) -> None:
    known = {run.run_id for run in pipeline.api.runs(DAG_ID)}
    page.goto(f"{pipeline.api.base_url}/dags/{DAG_ID}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    form.wait_for()
    wanted = TINY | {
        "corpus.partition": "2026-01-01",
        "model.lineage_id": "from-the-form",
        "training.train_steps": 40,
        # A choice, a number that may be absent, and a switch.
        "corpus.duplicates": "near",
        "masking.unit": "word",
        "masking.extra_max_seq_length": 32,
        "masking.dynamic": True,
    }
    # The sections of the schema are the sections of the form.
    for section in PipelineConfig.model_fields:
        form.get_by_role("button", name=section, exact=True).click()
        for name, value in wanted.items():
            if name.startswith(f"{section}."):
                fill_in(page, form, name, value)
    form.get_by_role("button", name="Trigger", exact=True).click()
    run_id = until(
        lambda: next((r.run_id for r in pipeline.api.runs(DAG_ID) if r.run_id not in known), None),
        name="the run",
    )
    assert pipeline.finish(run_id)[0] == "success"
    run = pipeline.run(run_id)
    stored = parse_config(uris.read(run.config), run.config)
    assert stored == with_overrides(load_preset("smoke"), wanted)
    page.goto(f"{pipeline.api.base_url}/dags/{DAG_ID}/runs/{run_id}")
    page.get_by_text("promotion", exact=False).first.wait_for()
    pipeline.assert_nothing_left()
