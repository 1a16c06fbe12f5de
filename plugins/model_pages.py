"""Adds the tab *Model* to the page of a DAG run, and the pages *Models* and *Spending* to the menu.

Airflow executes this file in each of its components, so it imports nothing heavy: the pages are
made when the API server is first asked for one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from hooks.addresses import PAGES, SITE, page_path


async def pages_app(scope: Any, receive: Any, send: Any) -> None:
    """Pass a request on to the application, which is created on the first request."""
    from pages.routes import application

    await application()(scope, receive, send)


APPS = [{"app": pages_app, "url_prefix": PAGES, "name": "Model pages"}]


def views(site: Path = SITE) -> list[dict[str, str]]:
    """Return the links that Airflow's UI shows, with the documentation if it is built."""
    return [*VIEWS, DOCUMENTATION] if site.is_dir() else VIEWS


VIEWS = [
    {
        "name": "Model",
        "href": page_path("run") + "?dag_id={DAG_ID}&run_id={RUN_ID}",
        "destination": "dag_run",
        "url_route": "model",
    },
    {
        "name": "Models",
        "href": page_path("models"),
        "destination": "nav",
        "category": "browse",
        "url_route": "models",
    },
    {
        "name": "Spending",
        "href": page_path("spending"),
        "destination": "nav",
        "category": "browse",
        "url_route": "spending",
    },
]
DOCUMENTATION = {
    "name": "Documentation",
    "href": page_path("docs/index.html"),
    "destination": "nav",
    "category": "docs",
    "url_route": "documentation",
}


class ModelPages(AirflowPlugin):
    """Registers the pages."""

    name = "model_pages"
    fastapi_apps = APPS
    external_views = views()
