"""What the tab of a run shows while it trains, and that it loads itself anew until then."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from model_registry import lease, outcomes
from pages import routes
from pipeline_store import identity
from pipeline_store.formats import (
    AttemptEvent,
    Heartbeat,
    JobPhase,
    OutcomeKind,
    PhaseName,
    Progress,
    RunRecord,
)
from tests.model_registry.runs import FinishedRun
from tests.plugins.page_site import Site, finished, run_page
from tests.plugins.test_pages import rent
from tpu_lifecycle.records.attempts import load_attempts


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site.over(tmp_path, monkeypatch)


def beat(made: FinishedRun, **changes: object) -> None:
    [record] = load_attempts(made.run.reservation(1))
    now = datetime.now(UTC)
    Heartbeat(
        worker=0,
        token=record.attempt.token,
        time=now - timedelta(seconds=5),
        job_id="train",
        progress=Progress(
            step=120,
            train_steps=400,
            loss=5.1234,
            tokens_per_second=3400.25,
            eta_seconds=600.0,
            checkpoint_step=100,
        ),
        log_chunks=0,
        disk_free_bytes=1,
        phase=JobPhase(name=PhaseName.LOOP, entered=now),
    ).model_copy(update=changes).write(record.layout.heartbeat(0))


def test_a_run_that_trains_shows_how_far_it_is_and_loads_itself_anew(site: Site) -> None:
    made = finished(site, "1")
    rent(made)
    beat(made)
    page = run_page(site, made)
    assert f'<body data-refresh="{routes.REFRESH_SECONDS}">' in page
    now = page[page.index("<h2>Now</h2>") :].split("</section>")[0]
    text = " ".join(now.split())
    assert "step 120 of 400, 10.0 min left, loss 5.1234, 3,400 tokens/s" in text
    assert "checkpoint at step 100" in text
    assert '<progress max="100" value="30.0"' in now
    assert "At most 9.60 USD so far" in text


@pytest.mark.parametrize("name", PhaseName)
def test_a_job_without_a_step_says_what_it_does(site: Site, name: PhaseName) -> None:
    made = finished(site, "1")
    rent(made)
    beat(made, progress=None, phase=JobPhase(name=name, entered=datetime.now(UTC)))
    page = run_page(site, made)
    assert "<progress" not in page
    [said] = re.findall("<b>train</b>: ([a-z ]+)", page)
    assert said.partition(" ")[0].endswith("ing")


def test_the_heartbeat_of_another_attempt_and_a_finished_run_show_nothing(site: Site) -> None:
    made = finished(site, "1")
    rent(made)
    beat(made, token="0" * 32)
    assert "<h2>Now</h2>" not in run_page(site, made)
    beat(made)
    outcomes.record(made.run, OutcomeKind.REJECTED, "worse", written_by="judge")
    page = run_page(site, made)
    assert "<h2>Now</h2>" not in page
    assert "data-refresh" not in page


def test_the_page_of_the_lineage_shows_it_too(site: Site) -> None:
    made = finished(site, "1")
    rent(made)
    beat(made)
    lease.acquire(
        made.lineage,
        RunRecord.load(made.run.record),
        expires=datetime.now(UTC) + timedelta(hours=1),
        poll_seconds=1,
        has_ended=lambda _: False,
    )
    page = " ".join(site.get("/models").split())
    assert "step 120 of 400, 10.0 min left" in page
    assert "At most 9.60 USD so far" in page


def test_a_tpu_is_listed_as_rented_until_it_is_gone(site: Site) -> None:
    made = finished(site, "1")
    rent(made)
    rented = site.get("/spending").split("<h2>Rented now</h2>")[1].split("</section>")[0]
    assert f"run?dag_id=dag&amp;run_id={quote(RunRecord.load(made.run.record).run_id)}" in rented
    assert 'data-refresh="60"' in site.get("/spending")
    [record] = load_attempts(made.run.reservation(1))
    record.mark(AttemptEvent.GONE)
    page = site.get("/spending")
    assert "None, by the records of this store." in page
    assert "data-refresh" not in page


@pytest.mark.parametrize("page", ["/models", "/spending"])
def test_pages_link_to_the_metrics_where_there_are_some(
    site: Site, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    assert ">Metrics</a>" not in site.get(page)
    monkeypatch.setenv("REPRETRAIN_METRICS_URL", "https://grafana.example.com/")
    link = '<a target="_blank" rel="noopener" href="https://grafana.example.com">Metrics</a>'
    assert link in site.get(page)


def test_pages_link_to_mlflow_where_there_is_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    for page in (site.get("/models"), run_page(site, made)):
        assert ">MLflow</a>" not in page
    monkeypatch.setenv("REPRETRAIN_MLFLOW_URL", "https://mlflow.example.com/")
    monkeypatch.setenv("REPRETRAIN_MLFLOW_PREFIX", "our team-")
    for page in (site.get("/models"), run_page(site, made)):
        assert 'href="https://mlflow.example.com/#/models/our%20team-default">MLflow</a>' in page


def test_pages_link_to_the_hub_where_there_is_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    monkeypatch.setenv("REPRETRAIN_HUB_REPOSITORY", "acme/bert-{lineage}")
    for page in (site.get("/models"), run_page(site, made)):
        assert ">Hugging Face Hub</a>" not in page
    monkeypatch.setenv("REPRETRAIN_HUB_URL", "https://huggingface.co/")
    for page in (site.get("/models"), run_page(site, made)):
        assert 'href="https://huggingface.co/acme/bert-default">Hugging Face Hub</a>' in page


def test_models_link_to_the_way_of_their_data_where_there_is_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    assert ">OpenLineage</a>" not in site.get("/models")
    address = "https://marquez.example.com/lineage/dataset"
    monkeypatch.setenv("REPRETRAIN_OPENLINEAGE_URL", address + "/{namespace}/{name}")
    name = quote(made.lineage.production, safe="")
    assert f'href="{address}/file/{name}">OpenLineage</a>' in site.get("/models")


def test_the_tab_of_a_run_links_to_its_trace_where_there_is_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = finished(site, "1")
    assert ">Trace</a>" not in run_page(site, made)
    monkeypatch.setenv("REPRETRAIN_TRACES_URL", "https://jaeger.example.com/trace/{trace_id}")
    address = f"https://jaeger.example.com/trace/{identity.trace_id(made.key)}"
    assert f'href="{address}">Trace</a>' in run_page(site, made)
