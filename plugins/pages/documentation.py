"""Serves the documentation site that `make docs` builds, behind Airflow's login.

The image contains it; a checkout has it after `make docs`. Without it there is no page.
"""

from __future__ import annotations

from fastapi import HTTPException
from fastapi.responses import FileResponse, RedirectResponse, Response

from hooks.addresses import SITE, page_path

_HEADERS = {
    # The theme has inline scripts and styles, and searches in a worker. All of it is trusted: the
    # files contain no user input.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def documentation_root() -> Response:
    """Redirect to the first page, relative to whose address the other pages' links work."""
    return RedirectResponse(page_path("docs/index.html"))


def documentation(path: str) -> Response:
    """Return a file of the site.

    :raises HTTPException: 404: the site is not there, or has no such file.
    """
    if not SITE.is_dir():
        raise HTTPException(404, "The documentation is not built here: run make docs.")
    wanted = (SITE / path).resolve()
    if not (wanted.is_relative_to(SITE) and wanted.is_file()):
        raise HTTPException(404, "The documentation has no such page.")
    return FileResponse(wanted, headers=_HEADERS)
