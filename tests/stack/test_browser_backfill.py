"""A backfill of six days, four at a time and one of them bad, as Airflow and our pages show it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from local.demo import browser, tiny
from local.stack.airflow_api import BackfillRequest
from pipeline_store import uris
from pipeline_store.formats import RunPlan, Verdict, VerdictKind
from pipeline_store.layout import RunLayout, StoreLayout
from tests.stack.driver import DAG_ID, TINY, Pipeline, until
from tests.stack.test_backfill_order import own_backfill

# Six runs, each with a training.
pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.timeout(2700)]

expect.set_options(timeout=browser.PATIENCE_MS)

LINEAGE, WATCH = "six-days", "pipeline_watch"
FIRST = datetime(2024, 6, 1, tzinfo=UTC)
KEYS = [f"2024-06-0{day}" for day in range(1, 7)]
POISONED = KEYS[2]
# Of another dialect, and so much that a model which learns it forgets the days before.
POISON = {"dialect": 5, "documents": 4000}
# What the last day has beside the language of all days, so that it, too, has something to teach.
NEWS = {"dialect": 8, "documents": 200}


def is_promoted(run: RunLayout, plan: RunPlan) -> bool:
    return Verdict.load(run.verdict(plan.parent_version)).verdict is VerdictKind.PROMOTED


def test_six_days_of_which_one_is_bad(pipeline: Pipeline, tmp_path: Path) -> None:
    api, store = pipeline.api, pipeline.store
    until(lambda: all(backfill.completed for backfill in api.backfills(DAG_ID)), name="no backfill")
    for seed, key in enumerate(KEYS):
        if key == POISONED:
            tiny.write_partition(store, key, seed=63, **POISON)
        else:
            pipeline.write_corpus(key, seed=60 + seed)
    tiny.write_partition(StoreLayout(str(tmp_path)), "news", seed=69, **NEWS)
    news = uris.read(uris.join(str(tmp_path), "corpus", "news", "a.txt"))
    uris.write(uris.join(store.root, "corpus", KEYS[-1], "news.txt"), news)
    conf = TINY | {"model.lineage_id": LINEAGE}
    request = BackfillRequest(DAG_ID, FIRST, FIRST + timedelta(days=5), conf, max_active_runs=4)
    api.create_backfill(request)
    listed = until(lambda: own_backfill(pipeline, LINEAGE), name="the list of runs")
    runs = {partition: run_id for run_id, partition in listed.runs.items()}
    for key in KEYS:
        assert pipeline.finish(runs[key])[0] == "success"
    plans = [RunPlan.load(pipeline.run(runs[key]).plan) for key in KEYS]
    sequences = [plan.lease_sequence for plan in plans]
    assert sequences == sorted(sequences)
    learned = {
        name
        for key, plan in zip(KEYS, plans, strict=True)
        if is_promoted(pipeline.run(runs[key]), plan)
        for name in plan.trained
    }
    assert learned == set(KEYS) - {POISONED}

    api.wait_for_dag(WATCH)
    assert api.wait_for_run(WATCH, api.trigger(WATCH), seconds=600).state == "success"
    summary = until(lambda: own_backfill(pipeline, LINEAGE, ended=True), name="its summary")
    assert list(summary.not_learned) == [POISONED]
    assert "quarantine" in summary.not_learned[POISONED]

    with browser.logged_in(api.base_url, "admin", pipeline.stack.password()) as page:
        look(page, api.base_url, runs[POISONED])


def look(page: Page, url: str, rejected: str) -> None:
    """Look at the page Models and at the note of the rejected run."""
    page.goto(f"{url}/repretraining/models?lineage={LINEAGE}")
    left = page.locator("section", has=page.get_by_role("heading", name="not learned"))
    expect(left.get_by_role("row")).to_have_count(2)  # with that of the headings
    expect(left).to_contain_text(POISONED)
    expect(left).to_contain_text("in quarantine after 2 rejections")
    page.goto(f"{url}/dags/{DAG_ID}/runs")
    row = page.get_by_role("row").filter(has_text=rejected)
    expect(row).to_contain_text("Success")
    row.get_by_role("button", name="Note", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Rejected: ")
