"""Addresses of Airflow and of our pages in it, as paths on its host for links in its UI."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode, urlsplit

from airflow.configuration import conf

PAGES = "/repretraining"
"""Where Airflow mounts the pages."""

SITE = Path(__file__).resolve().parents[2] / "site"
"""Folder of the built documentation: ``site_dir`` of mkdocs.yml, next to the code."""


def airflow_path() -> str:
    """Return the path prefix of Airflow on its host; usually empty."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


def page_path(page: str, **query: str) -> str:
    """Return the address of one of our pages, below Airflow's own path prefix."""
    words = f"?{urlencode(query)}" if query else ""
    return f"{airflow_path()}{PAGES}/{page}{words}"
