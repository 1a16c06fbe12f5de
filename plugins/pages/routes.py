"""The addresses of the pages. Each needs Airflow's login and permission to read the DAG.

Nothing in an address is used as a path: runs are found by hash, and lineages, versions and
partitions only if the store knows them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.configuration import conf
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from model_registry import registry
from pages import formatting
from pages.finetuning_view import finetuning_view
from pages.lineage_view import lineage_view
from pages.pausing import is_paused
from pages.reading import Reader
from pages.run_view import known_reports, run_view
from pages.spending import spending_view, spent_bar
from pipeline_config import load_preset
from pipeline_config.settings import load_settings
from pipeline_store import identity, uris
from pipeline_store.formats import RunRefusal
from pipeline_store.layout import StoreLayout, VersionLayout

MAIN_DAG, ROLLBACK_DAG = "bert_repretraining", "model_rollback"
FINETUNING_DAG = "bert_finetuning"
FOLDER = Path(__file__).parent

_PAGE = {
    # Nothing from elsewhere, and no script but our own file.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_REPORT = _PAGE | {
    # Made from people's text: as if from another origin, without scripts.
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'",
}

may_read_runs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))
may_read_models = Depends(requires_access_dag(method="GET", param_dag_id=MAIN_DAG))


@functools.cache
def application() -> FastAPI:
    """Return the application; made once, in the API server only."""
    app = FastAPI(title="Model pages", docs_url=None, redoc_url=None, openapi_url=None)
    app.get("/run", dependencies=[may_read_runs])(run_page)
    app.get("/data-report", dependencies=[may_read_runs])(data_report)
    app.get("/training-summary", dependencies=[may_read_runs])(training_summary)
    app.get("/models", dependencies=[may_read_models])(models_page)
    app.get("/spending", dependencies=[may_read_models])(spending_page)
    app.get("/card", dependencies=[may_read_models])(model_card)
    app.get("/style.css", dependencies=[may_read_models])(style_sheet)
    app.get("/frame.js", dependencies=[may_read_models])(frame_script)
    return app


def run_page(dag_id: str, run_id: str) -> Response:
    """Show what is known of one run."""
    finetuning = finetuning_view(_store(), dag_id, run_id)
    if finetuning is not None:
        paused = finetuning.outcome is None and is_paused(dag_id)
        return _html(
            "finetuning.html", view=finetuning, dag_id=dag_id, run_id=run_id, paused=paused
        )
    view = run_view(_store(), dag_id, run_id)
    if view is None:
        dags = {"main_dag": MAIN_DAG, "finetuning_dag": FINETUNING_DAG}
        refusal = RunRefusal.load_or_none(_store().run(identity.run_key(dag_id, run_id)).refusal)
        return _html("no_run.html", dag_id=dag_id, run_id=run_id, refusal=refusal, **dags)
    paused = view.outcome is None and is_paused(dag_id)
    return _html("run.html", view=view, dag_id=dag_id, run_id=run_id, paused=paused)


def data_report(dag_id: str, run_id: str, partition: str) -> Response:
    """Show the statistics of a partition that a run's plan names."""
    run = _store().run(identity.run_key(dag_id, run_id))
    uri = known_reports(run, Reader()).get(partition)
    data = uris.read_or_none(uri) if uri is not None else None
    if data is None:
        raise HTTPException(404, "This run's plan names no such partition, or it has no report.")
    return HTMLResponse(data, headers=_REPORT)


def training_summary(dag_id: str, run_id: str) -> Response:
    """Show what a fine-tuning run came to: tables, confusion pictures, whether it has paid."""
    run = _store().run(identity.run_key(dag_id, run_id))
    data = uris.read_or_none(run.training_page)
    if data is None:
        raise HTTPException(404, "This run has no report yet: its task report writes it.")
    return HTMLResponse(data, headers=_REPORT)


def models_page(lineage: str | None = None) -> Response:
    """Show the versions of a lineage; without a name, of the one that runs use by default."""
    store, settings = _store(), load_settings()
    known = registry.lineage_ids(store)
    if lineage is not None and lineage not in known:
        raise HTTPException(404, "There is no such lineage in the store.")
    usual = load_preset(settings.preset).model.lineage_id
    chosen = lineage or (usual if usual in known or not known else known[0])
    view = lineage_view(store, chosen, known)
    paused = view.lease is not None and is_paused(view.lease.dag_id)
    dags = {"main_dag": MAIN_DAG, "rollback_dag": ROLLBACK_DAG}
    return _html("models.html", view=view, paused=paused, **dags)


def spending_page() -> Response:
    """Show what the TPUs of all runs cost, by lineage and week, and what for."""
    return _html("spending.html", view=spending_view(_store()), spent_bar=spent_bar)


def model_card(lineage: str, version: str) -> Response:
    """Show the model card of a published version, as it was written: Markdown."""
    store = _store()
    if lineage not in registry.lineage_ids(store):
        raise HTTPException(404, "There is no such lineage in the store.")
    place = store.lineage(lineage)
    if version not in {model.version_id for model in registry.list_versions(place)}:
        raise HTTPException(404, "The lineage has no such version.")
    card = uris.read(VersionLayout(place.version(version)).card)
    return PlainTextResponse(card, headers=_PAGE)


def style_sheet() -> Response:
    """Return the pages' style sheet."""
    return FileResponse(FOLDER / "templates" / "style.css", media_type="text/css")


def frame_script() -> Response:
    """Return the script by which links leave Airflow's frame."""
    return FileResponse(FOLDER / "templates" / "frame.js", media_type="text/javascript")


def _store() -> StoreLayout:
    return StoreLayout(load_settings().store_uri)


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(formatting.FILTERS)
    base = urlsplit(conf.get("api", "base_url", fallback="")).path
    environment.globals["airflow"] = base.rstrip("/")
    return environment


def _html(template: str, **values: Any) -> Response:
    return HTMLResponse(_templates().get_template(template).render(**values), headers=_PAGE)
