"""Adds the tab *Model* to the page of a DAG run, and the pages *Models* and *Spending* to the menu.

Airflow executes this file in each of its components, so it imports nothing heavy: the pages are
made when the API server is first asked for one.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

PREFIX = "/repretraining"
# Airflow may lie below a path of its host; what it mounts does so too, but links must say it.
HOME = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/") + PREFIX


async def pages_app(scope: Any, receive: Any, send: Any) -> None:
    """Pass a request on to the application, which is made at the first one."""
    from pages.routes import application

    await application()(scope, receive, send)


APPS = [{"app": pages_app, "url_prefix": PREFIX, "name": "Model pages"}]
VIEWS = [
    {
        "name": "Model",
        "href": f"{HOME}/run?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
        "destination": "dag_run",
        "url_route": "model",
    },
    {
        "name": "Models",
        "href": f"{HOME}/models",
        "destination": "nav",
        "category": "browse",
        "url_route": "models",
    },
    {
        "name": "Spending",
        "href": f"{HOME}/spending",
        "destination": "nav",
        "category": "browse",
        "url_route": "spending",
    },
]


class ModelPages(AirflowPlugin):
    """Registers the pages."""

    name = "model_pages"
    fastapi_apps = APPS
    external_views = VIEWS
