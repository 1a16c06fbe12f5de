"""The questions of docs/operate/on-duty.md, answered by a viewer who clicks at most twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from local.demo import browser
from pipeline_store.formats import ProductionPointer
from tests.stack.driver import Pipeline, until
from tests.stack.thief import READS

# One test makes four runs.
pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1800)]

expect.set_options(timeout=browser.PATIENCE_MS)

LINEAGE, ROLLBACK = "on-duty", "model_rollback"
FIRST, SECOND, THIRD, FOURTH = (f"2026-01-{day:02}" for day in range(1, 5))


@pytest.fixture
def page(pipeline: Pipeline) -> Iterator[Page]:
    passwords = json.loads(pipeline.stack.paths.passwords.read_text())
    with browser.logged_in(pipeline.api.base_url, READS, passwords[READS]) as page:
        yield page


def opened(page: Page, url: str, title: str) -> FrameLocator:
    """Go from the home page to one of ours, in the menu; choose the lineage."""
    page.goto(url)
    browser.choose_in_menu(page, title)
    shown = browser.plugin_frame(page, title)
    shown.get_by_role("heading").first.wait_for()
    if title == "Models":
        browser.choose_lineage(shown, LINEAGE)
    return shown


def test_ten_questions(pipeline: Pipeline, page: Page) -> None:
    url, lineage = pipeline.api.base_url, pipeline.store.lineage(LINEAGE)
    for seed, partition in enumerate((THIRD, FOURTH), start=12):
        pipeline.write_corpus(partition, seed=seed)
    pipeline.finish(pipeline.trigger(FIRST, LINEAGE))
    first = ProductionPointer.load(lineage.production).version_id
    pipeline.finish(
        pipeline.trigger(SECOND, LINEAGE, training__train_steps=120, promotion__max_forgetting=10.0)
    )
    second = ProductionPointer.load(lineage.production).version_id
    assert second != first
    # No candidate is so much better.
    pipeline.finish(pipeline.trigger(THIRD, LINEAGE, promotion__min_improvement=50.0))
    pipeline.api.unpause(ROLLBACK)
    conf = {"lineage": LINEAGE, "version": "previous", "reason": "answers got worse"}
    rollback = pipeline.api.trigger(ROLLBACK, conf)
    assert pipeline.api.wait_for_run(ROLLBACK, rollback, seconds=300).state == "success"
    running = pipeline.trigger(FOURTH, LINEAGE, training__train_steps=4000)
    pipeline.wait_for_checkpoint(running)

    models = opened(page, url, "Models")
    now = models.locator("section", has=page.get_by_role("heading", name="Now"))
    # What is running, how far is it, what does it cost?
    expect(now).to_contain_text(re.compile(r"step [\d,]+ of 4,000"))
    expect(now).to_contain_text(re.compile(r"At most [\d.]+ USD so far"))
    expect(models.get_by_text(f"The lineage is held by run {running}")).to_be_visible()
    # Which model is in use, since when and why; who rolled back?
    in_use = models.locator("section", has=page.get_by_role("heading", name="In use", exact=True))
    expect(in_use).to_contain_text(re.compile(rf"{first} since 20\d\d-"))
    expect(in_use).to_contain_text("answers got worse")
    expect(in_use).to_contain_text("Rolled back by admin")
    # Why was it rejected, and what has the model not learned?
    attempts = models.locator("section", has=page.get_by_role("heading", name="Rejected, failed"))
    expect(attempts.get_by_role("row").filter(has_text=THIRD)).to_contain_text("50")
    missing = models.locator("section", has=page.get_by_role("heading", name="not learned"))
    expect(missing).to_contain_text(THIRD)
    # What has gone wrong lately?
    expect(models.get_by_role("heading", name="Newest alerts")).to_be_visible()
    attempts.get_by_role("link", name=THIRD).click()
    expect(models.get_by_role("heading", name="Verdict")).to_be_visible()

    spent = opened(page, url, "Spending")
    rented = spent.locator("section", has=page.get_by_role("heading", name="Rented now"))
    expect(rented.get_by_role("row", name=LINEAGE)).to_have_count(1)
    weeks = spent.locator("section", has=page.get_by_role("link", name=LINEAGE, exact=True))
    expect(weeks.get_by_role("row", name="in all")).to_be_visible()

    # A viewer sees all of it and starts nothing.
    known = [run.run_id for run in pipeline.api.runs(ROLLBACK)]
    form = browser.open_trigger_form(page, url, ROLLBACK)
    browser.fill_in(page, form, "lineage", LINEAGE)
    browser.fill_in(page, form, "reason", "to see whether I may")
    browser.submit(form)
    expect(form).to_contain_text("403 Forbidden")
    assert [run.run_id for run in pipeline.api.runs(ROLLBACK)] == known
    pipeline.api.mark_run("bert_repretraining", running, "failed")
    until(lambda: not pipeline.admin.table()["nodes"], name="no TPU")
