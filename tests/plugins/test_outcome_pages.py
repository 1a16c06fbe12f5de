"""What pages show of runs that came to nothing: refusals, attempts, partitions not learned."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry import attempts, outcomes
from pages import routes
from pipeline_store import identity, uris
from pipeline_store.formats import BackfillRuns, OutcomeKind, RunRecord, RunRefusal
from tests.model_registry.runs import NOW, FinishedRun
from tests.plugins.page_site import DAG_ID, Site, finished, publish, run_page

REASONS = ["training.train_steps: -4 is less than 1", "tpu.accelerator_type: <b>no</b> such type"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site.over(tmp_path, monkeypatch)


def refuse(site: Site, dag_id: str, run_id: str, **more: Any) -> None:
    refusal = RunRefusal(dag_id=dag_id, run_id=run_id, reasons=REASONS, time=NOW, **more)
    refusal.write(site.store.run(identity.run_key(dag_id, run_id)).refusal)


def end(run: FinishedRun, kind: OutcomeKind, reason: str, *, by_gate: bool = False) -> None:
    """Keep how a run has ended, as its last task does."""
    outcome = outcomes.record(run.run, kind, f"{kind}: {reason}", written_by="release")
    kept = attempts.record(run.lineage, run.run, RunRecord.load(run.run.record), outcome)
    assert kept is not None
    kept.model_copy(update={"by_gate": by_gate}).write(run.lineage.attempt(run.key))


def backfill(run: FinishedRun, not_learned: dict[str, str]) -> None:
    BackfillRuns(
        name="7-abc",
        dag_id=routes.MAIN_DAG,
        backfill_id=7,
        lineage_id="default",
        runs={f"run of {partition}": partition for partition in not_learned},
        created=NOW,
        ended=NOW + timedelta(hours=1),
        not_learned=not_learned,
    ).write(run.store.backfill("7-abc"))


def test_a_refused_run_shows_all_reasons_and_that_clearing_cannot_help(site: Site) -> None:
    refuse(site, routes.MAIN_DAG, "r", partition="2026-01-01", lineage_id="default")
    page = site.get("/run", dag_id=routes.MAIN_DAG, run_id="r")
    assert "Refused before anything was spent" in page
    assert REASONS[0] in page
    assert "&lt;b&gt;no&lt;/b&gt;" in page
    assert "partition 2026-01-01" in page
    assert "Clearing this one cannot help" in page


def test_a_run_that_was_refused_when_it_was_cleared_shows_that_beside_what_it_did(
    site: Site,
) -> None:
    made = finished(site, "1")
    assert "Refused" not in run_page(site, made)
    refuse(site, DAG_ID, made.name)
    page = run_page(site, made)
    assert "Refused when it was to begin again" in page
    assert REASONS[0] in page
    assert "400 steps" in page


def test_reasons_that_cannot_be_read_do_not_keep_the_page(site: Site) -> None:
    made = finished(site, "1")
    uris.write(made.run.refusal, b"{")
    assert "400 steps" in run_page(site, made)


def test_a_plan_names_what_is_in_quarantine(site: Site) -> None:
    made = finished(site, "1")
    made.plan(quarantined={"day-0": "in quarantine after 2 rejections"})
    assert "<td>day-0: in quarantine after 2 rejections</td>" in run_page(site, made)


def test_models_lists_what_was_not_learned_and_each_attempt(site: Site) -> None:
    first = finished(site, "1")
    for kind, reason, by_gate in (
        (OutcomeKind.FAILED, "tpu.train was lost", False),
        (OutcomeKind.REJECTED, "worse by 0.1", True),
    ):
        name = {"tpu.train was lost": "2", "worse by 0.1": "3"}[reason]
        end(finished(site, name), kind, reason, by_gate=by_gate)
    other = finished(site, "4")
    other.plan(trained={"day-3": first.lineage.manifest("day-3", "0" * 16)})
    end(other, OutcomeKind.REJECTED, "worse again", by_gate=True)
    backfill(first, {"day-1": "failed: before it was learned", "day-8": "refused: no text"})
    publish(first)
    page = site.get("/models")
    missing, _, tried = page.partition("Partitions not learned")[2].partition(
        "Rejected, failed and refused"
    )
    assert "day-1" not in missing
    assert "failed: tpu.train was lost" in missing
    assert "in quarantine after 2 rejections; the last: rejected: worse again" in missing
    assert "refused: no text" in missing
    assert "run_id=run%20of%20day-8" in missing
    assert tried.index("worse again") < tried.index("worse by 0.1") < tried.index("tpu.train was")


def test_models_says_nothing_of_a_lineage_that_has_learned_everything(site: Site) -> None:
    publish(finished(site, "1"))
    page = site.get("/models")
    assert "not learned" not in page
    assert "attempts" not in page
