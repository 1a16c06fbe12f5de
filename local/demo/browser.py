"""Operates Airflow's pages in a real Chromium: logs in, fills in forms, answers questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from playwright.sync_api import FrameLocator, Locator, Page, sync_playwright

from pipeline_config import PipelineConfig
from pipeline_config.requests import form_sections

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 120_000
# For Debian's Chromium, without calls to Google's services; it cannot sandbox itself as root.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def logged_in(url: str, user: str, password: str, *, height: int = 1000) -> Iterator[Page]:
    """Yield a page of Airflow's UI, logged in as a user; the browser closes at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS, headless=True
        )
        page = browser.new_page(viewport={"width": 1400, "height": height})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        page.get_by_role("textbox").first.fill(user)
        page.locator("input[type=password]").fill(password)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda address: "login" not in address)
        yield page
        browser.close()


def choose_in_menu(page: Page, title: str) -> None:
    """Open one of our pages from the menu *Browse*."""
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name=title).click()


def open_trigger_form(page: Page, url: str, dag_id: str) -> Locator:
    """Go to a DAG's page, press *Trigger* and return the dialog."""
    page.goto(f"{url}/dags/{dag_id}")
    page.get_by_test_id("trigger-dag-button").first.click()
    form = page.get_by_role("dialog")
    form.get_by_test_id("trigger-dag-submit").wait_for()
    return form


def open_section(form: Locator, title: str) -> None:
    """Open a section of the form, such as *advanced: tpu*; the section that was open closes."""
    form.get_by_role("button", name=title, exact=True).click()


def fill_in(page: Page, form: Locator, name: str, value: Any) -> None:
    """Enter a setting's value in the way that its kind of field takes."""
    field = form.locator(f'[name="element_{name}"]')
    kind = field.get_attribute("type")
    if kind == "hidden":
        form.locator(f'[id="element_{name}"]').click()
        page.get_by_role("option", name=value, exact=True).click()
    elif kind == "checkbox":
        # The visible switch is drawn over the checkbox.
        if field.is_checked() != value:
            field.dispatch_event("click")
    else:
        field.fill(str(value))
        field.press("Tab")


def fill_in_settings(page: Page, form: Locator, wanted: Mapping[str, Any]) -> None:
    """Fill in the main DAG's form, one section after the other."""
    for title, names in form_sections(PipelineConfig, ()).items():
        chosen = [name for name in names if name in wanted]
        if chosen:
            open_section(form, title)
        for name in chosen:
            fill_in(page, form, name, wanted[name])


def submit(form: Locator) -> None:
    """Press the dialog's own *Trigger*."""
    form.get_by_test_id("trigger-dag-submit").click()


def choose_backfill(page: Page, form: Locator, first: str, last: str) -> None:
    """Switch the trigger dialog to *Backfill* and fill in the days, such as 2026-01-01."""
    form.get_by_text("Backfill", exact=True).click()
    for number, day in enumerate((first, last)):
        # The field is a button that opens the inputs.
        form.get_by_test_id("datetime-input").nth(number).click()
        page.get_by_placeholder("YYYY/MM/DD").fill(day.replace("-", "/"))
        page.get_by_placeholder("HH:mm").fill("00:00")
        form.get_by_text("Date Range", exact=True).click()


def use_settings(form: Locator) -> None:
    """Tick the box without which a backfill ignores the values in the form."""
    box = form.get_by_role("checkbox", name="Override parameters on existing runs")
    if not box.is_checked():
        box.dispatch_event("click")


def open_question(page: Page, url: str, dag_id: str, run_id: str, task_id: str) -> None:
    """Go to the page on which a task asks a person a question."""
    run = f"{url}/dags/{dag_id}/runs/{quote(run_id, safe='')}"
    page.goto(f"{run}/tasks/{task_id}/required_actions")
    page.get_by_role("button", name="Approve", exact=True).wait_for()


def respond(page: Page, answer: str) -> None:
    """Answer the open question."""
    page.get_by_role("button", name=answer, exact=True).click()
    page.get_by_text("Response received", exact=False).first.wait_for()


def choose_lineage(shown: FrameLocator, lineage: str) -> None:
    """Go to a lineage on the page *Models*, which opens with the installation's own lineage."""
    shown.get_by_role("heading", name="Models of lineage").wait_for()
    if (link := shown.get_by_role("link", name=lineage, exact=True)).count():
        link.click()
    shown.get_by_role("heading", name=f"Models of lineage {lineage}", exact=True).wait_for()


def plugin_frame(page: Page, title: str) -> FrameLocator:
    """Return the frame in which Airflow shows one of our pages."""
    return page.frame_locator(f'iframe[title="{title}"]')
