"""Routes of the pages. Each requires Airflow's login and permission to read the DAG.

Nothing in an address is used as a path: runs are found by hash, and lineages, versions and
partitions only if the store knows them.
"""

from __future__ import annotations

import functools
from datetime import date
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from pydantic import BeforeValidator
from sqlalchemy import select
from starlette.exceptions import HTTPException as StarletteHTTPException

from hooks.addresses import SITE, airflow_path, page_path
from model_registry import registry
from pages import formatting
from pages.compare_view import MOST_RUNS, compare_view
from pages.documentation import documentation, documentation_root
from pages.downloads import archived_files, folder_sizes, tar_stream
from pages.finetuning_view import child_pages, finetuning_view
from pages.lineage_view import lineage_rows, lineage_view
from pages.reading import Reader
from pages.run_view import known_reports, run_view
from pages.spending import spending_view, spent_bar
from pipeline_alerts.errors import error_anchor
from pipeline_config import load_preset
from pipeline_config.settings import hub_repository, load_settings
from pipeline_store import identity, uris
from pipeline_store.formats import ModelVersion, RunRefusal
from pipeline_store.layout import LineageLayout, StoreLayout, VersionLayout
from tpu_lifecycle.records.spending import price_words


def is_paused(dag_id: str) -> bool:
    """Return whether a DAG is paused; False if Airflow has no DAG with that id."""
    with create_session() as session:
        found = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
    return bool(found)


MAIN_DAG, ROLLBACK_DAG = "bert_repretraining", "model_rollback"
FINETUNING_DAG = "bert_finetuning"
FOLDER = Path(__file__).parent
REFRESH_SECONDS = 10
"""Time after which a page about something that is still under way reloads."""
SLOW_REFRESH_SECONDS = 60
"""Reload time of a page that reads the spending of all runs."""

STATIC = {
    "style.css": "text/css",
    "frame.js": "text/javascript",
    "refresh.js": "text/javascript",
    "tables.js": "text/javascript",
}
"""Files that the pages load, with their types."""

_PAGE = {
    # Nothing from other origins, and no scripts but our own files.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_REPORT = _PAGE | {
    # Contains users' text: treated as another origin, without scripts.
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'",
}

# A form sends a cleared date as an empty text.
Since = Annotated[date | None, BeforeValidator(lambda value: value or None)]

may_read_runs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))
may_read_models = Depends(requires_access_dag(method="GET", param_dag_id=MAIN_DAG))


@functools.cache
def application() -> FastAPI:
    """Return the application; made once, in the API server only."""
    app = FastAPI(
        title="Model pages",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(_refuse_nul)],
    )
    app.add_exception_handler(StarletteHTTPException, _problem)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.get("/run", dependencies=[may_read_runs])(run_page)
    app.get("/data-report", dependencies=[may_read_runs])(data_report)
    app.get("/data-report-text", dependencies=[may_read_runs])(data_report_text)
    app.get("/training-summary", dependencies=[may_read_runs])(training_summary)
    app.get("/training-summary-text", dependencies=[may_read_runs])(training_summary_text)
    app.get("/children", dependencies=[may_read_runs])(children_page)
    app.get("/children-text", dependencies=[may_read_runs])(children_text)
    app.get("/models", dependencies=[may_read_models])(models_page)
    app.get("/compare", dependencies=[may_read_models])(compare_page)
    app.get("/spending", dependencies=[may_read_models])(spending_page)
    app.get("/card", dependencies=[may_read_models])(model_card)
    app.get("/download", dependencies=[may_read_models])(download)
    app.get("/docs", dependencies=[may_read_models])(documentation_root)
    app.get("/docs/{path:path}", dependencies=[may_read_models])(documentation)
    for name in STATIC:
        app.get(f"/{name}", dependencies=[may_read_models])(functools.partial(_static, name))
    return app


def _refuse_nul(request: Request) -> None:
    """Refuse NUL before Airflow looks up the DAG: its database and file systems reject it.

    :raises HTTPException: 400: there is one in the address.
    """
    texts = [request.scope["path"], *chain.from_iterable(request.query_params.multi_items())]
    if any("\0" in text for text in texts):
        raise HTTPException(400, "This address has a NUL character (%00). Open one without it.")


def _problem(_request: Request, error: Exception) -> Response:
    """Return an error as a page."""
    if not isinstance(error, StarletteHTTPException):
        raise error
    status = HTTPStatus(error.status_code)
    text = status.description if error.detail == status.phrase else str(error.detail)
    title = "Malformed address" if status == HTTPStatus.UNPROCESSABLE_ENTITY else status.phrase
    response = _html("problem.html", title=title, text=text)
    response.status_code = status
    response.headers.update(error.headers or {})
    return response


def _malformed(request: Request, error: Exception) -> Response:
    """Name the missing or malformed parts of an address, without quoting their values."""
    if not isinstance(error, RequestValidationError):
        raise error
    fields = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return _problem(request, HTTPException(422, f"{fields}."))


def run_page(dag_id: str, run_id: str) -> Response:
    """Show one run."""
    place = _store().run(identity.run_key(dag_id, run_id)).refusal
    refusal = Reader().load(RunRefusal, place)
    finetuning = finetuning_view(_store(), dag_id, run_id)
    if finetuning is not None:
        paused = finetuning.outcome is None and is_paused(dag_id)
        return _html(
            "finetuning.html",
            view=finetuning,
            refusal=refusal,
            dag_id=dag_id,
            run_id=run_id,
            paused=paused,
            refresh=_refresh(finetuning.outcome is None),
            curves=_curves(finetuning.record.run_key),
            trace=_trace(finetuning.record.run_key),
        )
    view = run_view(_store(), dag_id, run_id)
    if view is None:
        dags = {"main_dag": MAIN_DAG, "finetuning_dag": FINETUNING_DAG}
        # A run that was just triggered appears without a manual reload.
        refresh = _refresh(dag_id in dags.values() and refusal is None)
        return _html(
            "no_run.html",
            dag_id=dag_id,
            run_id=run_id,
            refusal=refusal,
            refresh=refresh,
            **dags,
        )
    is_open = view.outcome is None
    return _html(
        "run.html",
        view=view,
        refusal=refusal,
        dag_id=dag_id,
        run_id=run_id,
        paused=is_open and is_paused(dag_id),
        refresh=_refresh(is_open),
        curves=_curves(view.record.run_key),
        mlflow=_mlflow(view.record.lineage_id),
        hub=_hub(view.record.lineage_id),
        trace=_trace(view.record.run_key),
    )


def data_report(dag_id: str, run_id: str, partition: str) -> Response:
    """Show the statistics of a partition of a run, with a link back to the run."""
    _require_data_report(dag_id, run_id, partition)
    query = {"dag_id": dag_id, "run_id": run_id, "partition": partition}
    return _report(f"Data report of {partition}", "data-report-text", query)


def data_report_text(dag_id: str, run_id: str, partition: str) -> Response:
    """Return the statistics of a partition that a run has prepared or its plan names."""
    return HTMLResponse(_require_data_report(dag_id, run_id, partition), headers=_REPORT)


def training_summary(dag_id: str, run_id: str) -> Response:
    """Show the report of a fine-tuning run, with a link back to the run."""
    _require_summary(dag_id, run_id)
    query = {"dag_id": dag_id, "run_id": run_id}
    return _report("Report of the fine-tuning run", "training-summary-text", query)


def training_summary_text(dag_id: str, run_id: str) -> Response:
    """Return the report: tables, confusion matrices, and whether re-pretraining paid off."""
    return HTMLResponse(_require_summary(dag_id, run_id), headers=_REPORT)


def children_page(dag_id: str, run_id: str, trial: str) -> Response:
    """Show the smaller models of a classifier, with a link back to its run."""
    _require_children(dag_id, run_id, trial)
    query = {"dag_id": dag_id, "run_id": run_id, "trial": trial}
    return _report(f"Smaller models of {trial}", "children-text", query)


def children_text(dag_id: str, run_id: str, trial: str) -> Response:
    """Return the measurements of a classifier's smaller models: a picture and a table."""
    return HTMLResponse(_require_children(dag_id, run_id, trial), headers=_REPORT)


def _require_children(dag_id: str, run_id: str, trial: str) -> bytes:
    run = _store().run(identity.run_key(dag_id, run_id))
    data = uris.read_or_none(run.children(trial).page) if trial in child_pages(run) else None
    if data is None:
        raise HTTPException(404, "This run has no such classifier with smaller models.")
    return data


def _require_data_report(dag_id: str, run_id: str, partition: str) -> bytes:
    run = _store().run(identity.run_key(dag_id, run_id))
    uri = known_reports(run, Reader()).get(partition)
    data = uris.read_or_none(uri) if uri is not None else None
    if data is None:
        raise HTTPException(404, "This run has prepared no such partition, or it has no report.")
    return data


def _require_summary(dag_id: str, run_id: str) -> bytes:
    run = _store().run(identity.run_key(dag_id, run_id))
    data = uris.read_or_none(run.training_page)
    if data is None:
        raise HTTPException(404, "This run has no report yet: its task report writes it.")
    return data


def _report(title: str, path: str, query: dict[str, str]) -> Response:
    content = f"{path}?{urlencode(query)}"
    run = {"dag_id": query["dag_id"], "run_id": query["run_id"]}
    return _html("report.html", title=title, content=content, **run)


def models_page(lineage: str | None = None) -> Response:
    """Show the versions of a lineage; without an argument, of the default lineage."""
    store, settings = _store(), load_settings()
    known = registry.lineage_ids(store)
    if lineage is not None and lineage not in known:
        raise HTTPException(404, "There is no such lineage in the store.")
    usual = load_preset(settings.preset).model.lineage_id
    chosen = lineage or (usual if usual in known or not known else known[0])
    view = lineage_view(store, chosen, known)
    lineages = []
    if lineage is None and len(known) > 1:
        reader = Reader()
        lineages = lineage_rows(store, known, reader)
        view.problems += [line for line in reader.problems if line not in view.problems]
    paused = view.lease is not None and is_paused(view.lease.dag_id)
    dags = {"main_dag": MAIN_DAG, "rollback_dag": ROLLBACK_DAG}
    leases = [view.lease, *(row.lease for row in lineages)]
    refresh = _refresh(any(lease is not None for lease in leases))
    links = {"metrics": settings.metrics_url, "mlflow": _mlflow(chosen), "hub": _hub(chosen)}
    links["data_flow"] = _data_flow(store.lineage(chosen).production)
    shown = {"view": view, "lineages": lineages, "paused": paused, "refresh": refresh}
    return _html("models.html", **shown, **links, **dags)


def compare_page(lineage: str, run: Annotated[list[str] | None, Query()] = None) -> Response:
    """Show some runs of a lineage side by side, and the runs that can be chosen."""
    if lineage not in registry.lineage_ids(_store()):
        raise HTTPException(404, "There is no such lineage in the store.")
    view = compare_view(_store(), lineage, run or [])
    refresh = _refresh(any(one.is_open for one in view.runs))
    return _html("compare.html", view=view, most=MOST_RUNS, dag_id=MAIN_DAG, refresh=refresh)


def spending_page(since: Since = None) -> Response:
    """Show the cost of the TPUs of all runs, by lineage and week, and its use."""
    view, metrics = spending_view(_store(), since), load_settings().metrics_url
    shown = {"spent_bar": spent_bar, "price_words": price_words, "metrics": metrics}
    shown["refresh"] = SLOW_REFRESH_SECONDS if view.rented else 0
    return _html("spending.html", view=view, **shown)


def model_card(lineage: str, version: str) -> Response:
    """Show the model card of a published version, with its downloads."""
    place, model = _require_version(lineage, version)
    card = uris.read(VersionLayout(place.version(model.version_id)).card).decode()
    # HTML in it is shown as text, because it contains users' text.
    shown = Markup(_markdown().render(card))  # noqa: S704 - nothing but what the parser made
    return _html("card.html", model=model, card=shown, sizes=folder_sizes(model))


def download(lineage: str, version: str, folder: str = "") -> Response:
    """Stream a version, or one of its folders, as a tar archive."""
    place, model = _require_version(lineage, version)
    files = archived_files(model, folder)
    if not files:
        raise HTTPException(404, "The version has no such folder.")
    name = "-".join(filter(None, (model.version_id, folder.replace("/", "-"))))
    return StreamingResponse(
        tar_stream(place, model, files),
        media_type="application/x-tar",
        headers={
            "Content-Disposition": f'attachment; filename="{name}.tar"',
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        },
    )


def _require_version(lineage: str, version: str) -> tuple[LineageLayout, ModelVersion]:
    """Return a version that the store knows; no name in an address is used as a path.

    :raises HTTPException: 404: there is no such lineage or version.
    """
    store = _store()
    if lineage not in registry.lineage_ids(store):
        raise HTTPException(404, "There is no such lineage in the store.")
    place = store.lineage(lineage)
    for model in registry.list_versions(place):
        if model.version_id == version:
            return place, model
    raise HTTPException(404, "The lineage has no such version.")


def _static(name: str) -> Response:
    return FileResponse(FOLDER / "templates" / name, media_type=STATIC[name])


def _curves(run_key: str) -> str:
    """Return the address of a run's curves in TensorBoard, filtered by the run's key."""
    base = load_settings().tensorboard_url
    return f"{base}/?{urlencode({'runFilter': run_key})}#timeseries" if base else ""


def _mlflow(lineage_id: str) -> str:
    """Return the address of a lineage's copy in MLflow, under the name `pipeline_mirror` uses."""
    settings = load_settings()
    if not settings.mlflow_url:
        return ""
    return f"{settings.mlflow_url}/#/models/{quote(settings.mlflow_prefix + lineage_id, safe='')}"


def _hub(lineage_id: str) -> str:
    """Return the address of a lineage's repository on the Hugging Face Hub."""
    settings = load_settings()
    if not settings.hub_url or not settings.hub_repository:
        return ""
    return f"{settings.hub_url}/{hub_repository(lineage_id)}"


def _data_flow(uri: str) -> str:
    """Return the address of a file's data flow in the tool that receives OpenLineage events."""
    namespace, name = uris.dataset_name(uri)
    words = {"{namespace}": namespace, "{name}": name}
    address = load_settings().openlineage_url
    for word, value in words.items():
        address = address.replace(word, quote(value, safe=""))
    return address


def _trace(run_key: str) -> str:
    """Return the address of a run's trace in the tool that receives the traces."""
    return load_settings().traces_url.replace("{trace_id}", identity.trace_id(run_key))


def _refresh(is_open: bool) -> int:
    return REFRESH_SECONDS if is_open else 0


@functools.cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


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
    environment.globals["airflow"] = airflow_path()
    # A page of the documentation that is not there lies deeper than the others.
    environment.globals["static"] = page_path("")
    environment.globals["error_page"] = _error_page
    return environment


def _error_page(text: str) -> str:
    """Return the address of the explanation of an error in a text; empty: there is none."""
    anchor = error_anchor(text) if SITE.is_dir() else None
    return page_path(f"docs/operate/errors.html#{anchor}") if anchor else ""


def _html(template: str, **values: Any) -> Response:
    return HTMLResponse(_templates().get_template(template).render(**values), headers=_PAGE)
