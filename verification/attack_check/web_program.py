"""Asks the API server's application, with our pages, what strangers and viewers may not.

``python -m verification.attack_check.web_program``, where Airflow's settings are those of an empty
installation; see :mod:`verification.attack_check.web_attacks`. Prints, as its last line, the
tallies by name.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from verification.attack_check.rows import Tally

UNMENDED = "--words-as-they-are"
_OPEN = re.compile(r"/api/v2/(version|monitor/health|auth/log(in|out))$|/auth/|^/api/(v1/)?1$")
"""What is meant to be open: health, version, the login itself, and what says that it is not."""
_REFUSALS = (401, 403)
_OWN = re.compile(r"/favorite|/unfavorite")
"""What a viewer may change: what is theirs."""
_METHODS = ("GET", "POST", "PUT", "DELETE")
_VALUES = (
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "/etc/passwd",
    "file:///etc/passwd",
    "gs://bucket/x",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "javascript:alert(1)",
    "{{ 7 * 191 }}",
    "${7*191}",
    "{% include '/etc/passwd' %}",
    "a\r\nSet-Cookie: x=1",
    "a\nb",
    "\u202ea",
    "x" * 60_000,
    "' OR 1=1 --",
    "*",
    "",
    "\U0001f4a9",
)
_RAW = ("<script>alert", "<img src=x", "root:", "1337")


def main() -> int:
    """Ask everything; print the tallies."""
    from airflow.utils.db import initdb

    initdb()
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    app = create_app("all")
    manager = get_auth_manager()

    def client(cookie: str | None) -> Any:
        cookies = {"_token": cookie} if cookie else {}
        found = TestClient(app, cookies=cookies, raise_server_exceptions=False)
        found.follow_redirects = False
        return found

    def token(role: str | None) -> str:
        return manager.generate_jwt(SimpleAuthManagerUser(username="ada", role=role))

    from pages import routes

    if UNMENDED in sys.argv:
        routes._templates().autoescape = False
    pages = [f"/repretraining{route.path}" for route in routes.application().routes]  # type: ignore[attr-defined]
    doors = [*_doors(app)]
    tallies = {
        "requests without a login": _strangers(client(None), doors),
        "changes as a viewer": _changes(client(token("viewer")), doors),
        "pages, roles and forged tokens": _forged(client, token, pages),
        "parameters of pages": _parameters(client(token("viewer")), pages),
    }
    print(json.dumps({name: asdict(tally) for name, tally in tallies.items()}))
    return 0


def _doors(app: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield method and address of all that an application answers."""
    for route in app.routes:
        path = before + getattr(route, "path", "")
        if methods := getattr(route, "methods", None):
            address = re.sub(r"\{[^}]*\}", "1", path)
            yield from ((method, address) for method in sorted(methods - {"HEAD", "OPTIONS"}))
        elif "/execution" not in path and hasattr(getattr(route, "app", None), "routes"):
            yield from _doors(route.app, path)


def _strangers(client: Any, doors: list[tuple[str, str]]) -> Tally:
    tally = Tally()
    for method, address in doors:
        if not address.startswith(("/api/", "/ui/", "/repretraining")) or _OPEN.search(address):
            continue
        code = client.request(method, address).status_code
        tally.add(*([] if code in _REFUSALS else [f"{method} {address}: {code}"]))
    return tally


def _changes(client: Any, doors: list[tuple[str, str]]) -> Tally:
    tally = Tally()
    for method, address in doors:
        if method == "GET" or not address.startswith("/api/") or _OPEN.search(address):
            continue
        code = client.request(method, address, json={}).status_code
        is_theirs = _OWN.search(address) is not None
        tally.add(*([f"{method} {address}: {code}"] if code < 300 and not is_theirs else []))
    return tally


def _forged(client: Any, token: Any, pages: list[str]) -> Tally:
    good = token("viewer")
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    cookies = (
        None,
        token(None),
        f"{head}.{good.split('.')[1]}.",
        f"{head}.{good.split('.')[1]}.{good.split('.')[2]}",
        good[:-4] + "AAAA",
        "a.b.c",
    )
    spellings = (
        "",
        "/",
        "/../models",
        "%2f",
        "?dag_id=bert_repretraining&run_id=x&lineage=default",
    )
    tally = Tally()
    for cookie in cookies:
        asked = client(cookie)
        for page, method, spelling in itertools.product(pages, _METHODS, spellings):
            code = asked.request(method, page + spelling).status_code
            tally.add(*([f"{method} {page}{spelling}: {code}"] if code < 300 or code > 499 else []))
    return tally


def _parameters(client: Any, pages: list[str]) -> Tally:
    names = ("dag_id", "run_id", "partition", "lineage", "version")
    usual = {"dag_id": "bert_repretraining", "run_id": "x"}
    tally = Tally()
    for page, name, value in itertools.product(pages, names, _VALUES):
        answer = client.get(page, params={**usual, name: value})
        found = [f"{raw!r} by {name} of {page}" for raw in _RAW if raw in answer.text]
        if answer.status_code > 499:
            found.append(f"{answer.status_code} by {name}={value[:40]!r} of {page}")
        tally.add(*found)
    return tally


if __name__ == "__main__":
    sys.exit(main())
