"""Odd values typed into the trigger form, in a real Chromium: kept or refused, never changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from local.demo import browser
from pipeline_config import PipelineConfig
from pipeline_config.requests import form_sections
from tests.stack.driver import DAG_ID, Pipeline, until

pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(1800)]

expect.set_options(timeout=browser.PATIENCE_MS)

ODD = ("0", "-7", "1e9", "seven", "")
TYPED_INTO = 'input:not([type="hidden"]):not([type="checkbox"])', "textarea"


@pytest.fixture(scope="module")
def page(pipeline: Pipeline) -> Iterator[Page]:
    url, password = pipeline.api.base_url, pipeline.stack.password()
    with browser.logged_in(url, "admin", password) as page:
        yield page


def type_everywhere(form: Locator, value: str) -> set[str]:
    """Type a value into each field that takes text, and return the settings' names."""
    typed = set()
    for title, names in form_sections(PipelineConfig, ()).items():
        browser.open_section(form, title)
        for name in names:
            field = form.locator(", ".join(f'{kind}[name="element_{name}"]' for kind in TYPED_INTO))
            if field.count():
                field.fill(value)
                field.press("Tab")
                assert field.input_value() == value, f"{name}: {value!r} was changed in the field"
                typed.add(name)
    return typed


def is_same(sent: Any, value: str) -> bool:
    """Whether what Airflow was sent is what was typed; a field that had it before sends no text."""
    if isinstance(sent, list):
        return sent == ([value] if value else [])
    return sent is None if value == "" else str(sent) == value


def is_sent(form: Locator) -> bool:
    """Press *Trigger* and return whether the form has gone; one that refuses cannot be pressed."""
    button = form.get_by_test_id("trigger-dag-submit")
    # Airflow looks at a field half a second after it was left.
    form.page.wait_for_timeout(2000)
    if button.is_disabled():
        return False
    button.click()
    expect(form).to_be_hidden()
    return True


def sent(pipeline: Pipeline, known: set[str]) -> tuple[str, dict[str, Any]]:
    """Return the run that has just been made, and its configuration."""
    new = until(lambda: run_ids(pipeline) - known, name="the run of the form")
    [run_id] = new
    path = f"/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}"
    return run_id, pipeline.api.request("GET", path)["conf"]


def run_ids(pipeline: Pipeline) -> set[str]:
    return {run.run_id for run in pipeline.api.runs(DAG_ID)}


@pytest.mark.parametrize("value", ODD)
def test_an_odd_value_is_kept_or_refused(pipeline: Pipeline, page: Page, value: str) -> None:
    known = run_ids(pipeline)
    form = browser.open_trigger_form(page, pipeline.api.base_url, DAG_ID)
    typed = type_everywhere(form, value)
    one_of_each = {"training.global_batch_size", "tpu.zones", "promotion.probe_random_seeds"}
    assert {"corpus.partition", *one_of_each} < typed
    if not is_sent(form):
        # Only what must not be left empty is refused here, and it stays as it was filled in.
        assert value == ""
        assert run_ids(pipeline) == known
        return
    run_id, conf = sent(pipeline, known)
    changed = {name: conf.get(name) for name in typed if not is_same(conf.get(name), value)}
    assert not changed
    # Nothing that is out of its limits is trained with.
    assert pipeline.finish(run_id)[0] == "failed"
    assert pipeline.task(run_id, "validate").state == "failed"
