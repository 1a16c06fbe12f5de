"""Addresses of Airflow and of our pages in it, as links in its UI say them: paths on its host."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode, urlsplit

from airflow.configuration import conf

PAGES = "/repretraining"
"""Where Airflow mounts the pages."""

SITE = Path(__file__).resolve().parents[2] / "site"
"""The documentation, where it is built: ``site_dir`` of mkdocs.yml, beside the code."""


def airflow_path() -> str:
    """Return the path below which Airflow lies on its host; mostly empty."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


def page_path(page: str, **query: str) -> str:
    """Return the address of one of our pages; what Airflow mounts lies below its own path too."""
    words = f"?{urlencode(query)}" if query else ""
    return f"{airflow_path()}{PAGES}/{page}{words}"
