"""Runs compared, followed, downloaded and found in TensorBoard, in a real Chromium."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from local.demo import browser
from pipeline_store.formats import ModelVersion, ProductionPointer
from tests.stack.driver import DAG_ID, Pipeline, until

# One test makes three runs.
pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1800)]

expect.set_options(timeout=browser.PATIENCE_MS)

LINEAGE = "side-by-side"
PARTITIONS = ("2026-01-01", "2026-01-02", "2026-01-03")


@pytest.fixture
def page(pipeline: Pipeline) -> Iterator[Page]:
    with browser.logged_in(pipeline.api.base_url, "admin", pipeline.stack.password()) as page:
        yield page


def test_three_runs_are_followed_compared_and_downloaded(pipeline: Pipeline, page: Page) -> None:
    url = pipeline.api.base_url
    pipeline.write_corpus(PARTITIONS[2], seed=12)
    runs = [
        pipeline.trigger(partition, LINEAGE, training__train_steps=60 + 40 * number)
        for number, partition in enumerate(PARTITIONS)
    ]
    # While it trains the tab says how far it is, also after a reload, and stops when it is over.
    page.goto(f"{url}/dags/{DAG_ID}/runs/{quote(runs[0], safe='')}/plugin/model")
    shown = browser.plugin_frame(page, "Model")
    # The tab was opened before the run was known, and loads itself until a TPU is at work.
    shown.get_by_role("heading", name="Now").wait_for(timeout=3 * browser.PATIENCE_MS)
    page.reload()
    expect(browser.plugin_frame(page, "Model").locator("body[data-refresh]")).to_have_count(1)
    for run_id in runs:
        pipeline.finish(run_id)
    shown = browser.plugin_frame(page, "Model")
    shown.get_by_role("heading", name="Outcome").wait_for()
    expect(shown.locator("body[data-refresh]")).to_have_count(0)

    with page.context.expect_page() as opened:
        shown.get_by_role("link", name="TensorBoard").click()
    run_key = pipeline.run(runs[0]).root.rpartition("/")[2]
    expect(opened.value.get_by_text(run_key).first).to_be_visible()
    opened.value.close()

    page.goto(f"{url}/repretraining/compare?lineage={LINEAGE}")
    boxes = page.get_by_role("checkbox")
    expect(boxes).to_have_count(3)
    for number in range(3):
        boxes.nth(number).check()
    page.get_by_role("button", name="Compare").click()
    curve = page.get_by_role("img", name="Masked-LM loss while training")
    expect(curve.locator("path")).to_have_count(3)
    expect(page.get_by_role("row", name="training.train_steps")).to_contain_text("140")

    lineage = pipeline.store.lineage(LINEAGE)
    pointer = until(
        lambda: ProductionPointer.load_or_none(lineage.production), name="a model in use"
    )
    model = ModelVersion.load(lineage.model(pointer.version_id))
    page.goto(f"{url}/plugin/models")
    shown = browser.plugin_frame(page, "Models")
    browser.choose_lineage(shown, LINEAGE)
    shown.get_by_role("link", name="Model card").click()
    with page.expect_download() as download:
        shown.get_by_role("link", name="everything").click()
    with tarfile.open(download.value.path()) as archive:
        names = set(archive.getnames())
    assert {f"{model.version_id}/{file.path}" for file in model.files} < names
