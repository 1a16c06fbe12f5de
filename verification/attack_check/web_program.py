"""Sends forbidden requests of strangers and viewers to the API server with our pages.

``python -m verification.attack_check.web_program``, where Airflow's settings are those of an empty
installation, which it fills; see :mod:`verification.attack_check.web_attacks`. Prints, as its last
line, the tallies by name: with the safeguards, and for the same installation without them.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from unittest import mock

from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from model_registry import registry
from verification.attack_check.rows import Tally
from verification.attack_check.web_installation import (
    ROLLBACK_DAG,
    SECRET,
    Installation,
    fill,
    parse_dag,
)

EVIL = "http://evil.example"
"""Origin of another page in the same browser."""
_OPEN = re.compile(r"/api/v2/(version|monitor/health|auth/log(in|out))$|/auth/|^/api/(v1/)?1$")
"""Endpoints that are meant to be open: health, version, the login, and the not-found answers."""
_REFUSALS = (401, 403)
_OWN = re.compile(r"/(un)?favorite$|/(dagRuns|taskInstances)/list$")
"""Endpoints that viewers may use: their own preferences, and queries that are too long for a URL.
"""
_ENDLESS = re.compile(r"/wait$")
"""Endpoints that answer only when a run has ended."""
_METHODS = ("GET", "POST", "PUT", "DELETE")
_NUL = "a\0b"
"""No database and no file system accepts it, so a page must refuse it before using either."""
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
    _NUL,
    "\u202ea",
    "x" * 60_000,
    "' OR 1=1 --",
    "*",
    "",
    "\U0001f4a9",
)
_STORED = ("lineage", "version", "partition", "trial")
"""Parameters that name objects in the store, which has none with the hostile names."""
_RAW = ("<script>alert", "<img src=x", "root:", "1337")
_ROLES = ("viewer", "user", "op", "admin")
_TRIGGER = json.dumps({"logical_date": None, "conf": {}})
_SIMPLE_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
)
"""Content types that a browser sends cross-site without a preflight request; the last is none."""

_UNMENDED = {
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "AIRFLOW__CORE__HIDE_SENSITIVE_VAR_CONN_FIELDS": "False",
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "AIRFLOW__API__ACCESS_CONTROL_ALLOW_ORIGINS": EVIL,
    "AIRFLOW__API__ACCESS_CONTROL_ALLOW_METHODS": "*",
    "AIRFLOW__API__ACCESS_CONTROL_ALLOW_HEADERS": "*",
}
_ENOUGH = 3
"""Number of harmful tries after which a control has shown that its safeguard is needed."""

Client = Callable[[str | None], Any]
Tries = Callable[[], Iterator[Sequence[str]]]
"""A group of tries; yields the harm that each has done."""


def main(argv: Sequence[str] | None = None) -> int:
    """Send the requests with the safeguards, then without; print the tallies."""
    parser = argparse.ArgumentParser(prog="verification.attack_check.web_program")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="of each attack's groups")
    most = parser.parse_args(argv).most
    from airflow.utils.db import initdb

    initdb()
    from anyio.from_thread import start_blocking_portal

    # One portal for all requests: each would otherwise start its own threads and event loop.
    with _schemas_checked_once(), start_blocking_portal() as portal:
        client = _clients(portal)
        there = fill(client(_token("admin")))
        mended = {
            name: asdict(_tally(tries, most)) for name, tries in _attacks(client, there).items()
        }
        with _without_mends():
            client = _clients(portal)
            control = {
                name: asdict(_tally(tries, sys.maxsize, _ENOUGH))
                for name, tries in _attacks(client, there).items()
            }
    print(json.dumps({"mended": mended, "control": control}))
    return 0


@contextmanager
def _schemas_checked_once() -> Iterator[None]:
    """Validate equal schemas of form settings only once; values are validated as usual.

    Airflow validates the schemas again for each task, when it stores a DAG and whenever it lists
    tasks, which took longer than everything else here.
    """
    validator = validator_for({})
    check, known = validator.check_schema, set[str]()

    def once(schema: Any, *arguments: Any, **options: Any) -> None:
        if (text := json.dumps(schema, sort_keys=True)) not in known:
            check(schema, *arguments, **options)
            known.add(text)

    with mock.patch.object(validator, "check_schema", once):
        yield


def _clients(portal: Any) -> Client:
    """Return a function that makes clients, by cookie, of an application with current settings."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    app = create_app("all")

    @cache
    def client(cookie: str | None) -> Any:
        headers = {"Cookie": f"_token={cookie}"} if cookie else {}
        found = TestClient(
            app, headers=headers, raise_server_exceptions=False, follow_redirects=False
        )
        # All requests are independent: an answer that deletes the cookie affects no other.
        found.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        found.portal = portal
        return found

    return client


def _token(role: str | None) -> str:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    token: str = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ada", role=role))
    return token


@contextmanager
def _without_mends() -> Iterator[None]:
    """Make everyone an administrator, and disable the safeguards of pages, server and forms."""
    from airflow import settings
    from airflow._shared.secrets_masker import reset_secrets_masker
    from airflow.sdk._shared import secrets_masker

    import trigger_form
    from pages import routes
    from team_login import throttle

    templates = routes._templates().overlay(autoescape=False)
    with (
        mock.patch.dict(os.environ, _UNMENDED),
        mock.patch.object(routes, "_templates", return_value=templates),
        mock.patch.object(throttle, "MOST_FAILURES", sys.maxsize),
        mock.patch.object(trigger_form, "whole", lambda pattern: pattern),
    ):
        settings._configure_secrets_masker()
        # The maskers have already learned the secrets.
        reset_secrets_masker()
        secrets_masker.reset_secrets_masker()
        parse_dag(ROLLBACK_DAG)
        yield


def _attacks(client: Client, there: Installation) -> dict[str, list[Tries]]:
    """Return the attacks by name."""
    admin, viewer = client(_token("admin")), client(_token("viewer"))
    doors = [*there.doors(admin.app)]
    return {
        "forms of a rollback": [partial(_rollback_forms, admin)],
        "secrets in answers": [*_secrets([client(_token(role)) for role in _ROLES], doors)],
        "requests of another site": [partial(_other_sites, admin)],
        "pages, roles and forged tokens": [*_forged(client, there)],
        "parameters of pages": [*_parameters(viewer, there)],
        "reason of a rollback on pages": [partial(_reasons, viewer, there)],
        "wrong passwords": [_passwords],
        # Last, because requests that are not refused are carried out.
        "changes as a viewer": [*_changes(viewer, there, doors)],
        "requests without a login": [*_strangers(client(None), doors)],
    }


def _tally(tries: list[Tries], most: int, enough: int = sys.maxsize) -> Tally:
    """Try up to ``most`` groups of an attack, drawn by seed, until it has done enough harm."""
    tally, draw = Tally(), random.Random(1)  # noqa: S311 - drawn by seed
    chosen = sorted(draw.sample(range(len(tries)), min(most, len(tries))))
    for harm in itertools.chain.from_iterable(tries[number]() for number in chosen):
        tally.add(*harm)
        if tally.bad >= enough:
            break
    return tally


def _strangers(client: Any, doors: list[tuple[str, str]]) -> Iterator[Tries]:
    def tries(method: str, address: str) -> Iterator[Sequence[str]]:
        code = client.request(method, address).status_code
        yield [] if code in _REFUSALS else [f"{method} {address}: {code}"]

    for method, address in doors:
        if address.startswith(("/api/", "/ui/", "/repretraining")) and not _OPEN.search(address):
            yield partial(tries, method, address)


def _secrets(clients: list[Any], doors: list[tuple[str, str]]) -> Iterator[Tries]:
    """Search everything that each role can read for a connection's and a variable's secret."""

    def tries(address: str) -> Iterator[Sequence[str]]:
        for role, client in zip(_ROLES, clients, strict=True):
            is_seen = SECRET in client.get(address).text
            yield [f"{role} reads it at {address}"] if is_seen else []

    # First those in which the control, which ends early, must find the secret.
    addresses = ["/api/v2/variables/attacked_secret", "/ui/config"]
    addresses += [address for method, address in doors if method == "GET"]
    for address in addresses:
        if not _ENDLESS.search(address):
            yield partial(tries, address)


def _changes(client: Any, there: Installation, doors: list[tuple[str, str]]) -> Iterator[Tries]:
    """Change existing objects, each with a body that Airflow accepts from an administrator."""
    bodies = {there.address(path): body for path, body in _BODIES.items()}

    def tries(method: str, address: str) -> Iterator[Sequence[str]]:
        code = client.request(method, address, json=bodies.get(address, {})).status_code
        is_right = code < 300 if _OWN.search(address) else code in _REFUSALS
        yield [] if is_right else [f"{method} {address}: {code}"]

    for method, address in doors:
        if method != "GET" and address.startswith("/api/") and not _OPEN.search(address):
            yield partial(tries, method, address)


def _bulk(**entity: Any) -> dict[str, Any]:
    return {"actions": [{"action": "update", "entities": [entity]}]}


_BODIES: dict[str, dict[str, Any]] = {
    "/api/v2/connections": _bulk(connection_id="attacked", conn_type="ftp"),
    "/api/v2/connections/enqueue-test": {"connection_id": "new", "conn_type": "http"},
    "/api/v2/dags/{dag_id}/dagRuns": _bulk(dag_run_id="attacked", state="failed"),
    "/api/v2/dags/{dag_id}/clearDagRuns": {"dag_runs": [{"dag_run_id": "attacked"}]},
    "/api/v2/pools": _bulk(name="attacked", slots=2),
    "/api/v2/variables": _bulk(key="attacked", value="y"),
}
"""Bodies for endpoints at which Airflow validates the request before it authorizes the user."""


def _forged(client: Client, there: Installation) -> Iterator[Tries]:
    """Request pages that a viewer may see, with missing or forged logins."""
    good = _token("viewer")
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    cookies = (
        None,
        _token(None),
        f"{head}.{good.split('.')[1]}.",
        f"{head}.{good.split('.')[1]}.{good.split('.')[2]}",
        good[:-4] + "AAAA",
        "a.b.c",
    )
    viewer = client(good)

    def shown(page: str, query: Any) -> Iterator[Sequence[str]]:
        answer = viewer.get(page, params=query)
        yield [] if _is_shown(answer, page) else [f"viewers: {answer.status_code} {page}"]

    def tries(method: str, spelling: str, page: str, query: Any) -> Iterator[Sequence[str]]:
        is_shown = _is_shown(viewer.request(method, spelling, params=query), page)
        for cookie in cookies:
            code = client(cookie).request(method, spelling, params=query).status_code
            # A page that a viewer does not get either is missing, or cannot be changed.
            is_right = code in _REFUSALS or (not is_shown and 300 <= code < 500)
            yield [] if is_right else [f"{method} {spelling}: {code}"]

    for page, query in there.pages.items():
        yield partial(shown, page, query)
        name = page.rpartition("/")[2]
        spellings = (page, f"{page}/", f"{page}/../{name}", f"{page}%2f", f"/repretraining//{name}")
        for spelling, method in itertools.product(spellings, _METHODS):
            yield partial(tries, method, spelling, page, query)


def _is_shown(answer: Any, page: str) -> bool:
    """Return whether a page is shown, or redirects to the one below it, as a folder's does."""
    below = answer.is_redirect and answer.headers["location"].startswith(f"{page}/")
    return bool(answer.is_success or below)


def _parameters(client: Any, there: Installation) -> Iterator[Tries]:
    """Change one parameter at a time of pages that show content."""

    def tries(page: str, query: Any, name: str) -> Iterator[Sequence[str]]:
        for value in _VALUES:
            answer = client.get(page, params={**query, name: value})
            tried = f"{name}={value[:40]!r} of {page}"
            found = [f"{raw!r} by {tried}" for raw in _RAW if raw in answer.text]
            if answer.status_code > 499 or "x=1" in answer.headers.get("set-cookie", ""):
                found.append(f"{answer.status_code} by {tried}")
            if answer.status_code == 200 and name in query and name in _STORED:
                found.append(f"something is found by {tried}")
            if value == _NUL and answer.status_code != 400:
                found.append(f"{answer.status_code} by {tried}, and not 400")
            yield found

    for page, query in there.pages.items():
        for name in (*query, "folder", "run"):
            yield partial(tries, page, query, name)


def _reasons(client: Any, there: Installation) -> Iterator[Sequence[str]]:
    """Roll back with tags and templates as reasons, and check the models page."""
    run = there.run
    versions = [model.version_id for model in registry.list_versions(run.lineage)]
    for number, value in enumerate(filter(None, _VALUES)):
        reason = f"because {value[:400]}"
        registry.rollback(
            run.lineage, versions[number % len(versions)], reason=reason, by=value[:40]
        )
        text = client.get("/repretraining/models", params={"lineage": "default"}).text
        found = [f"{raw!r} by the reason {value[:40]!r}" for raw in _RAW if raw in text]
        yield [*found, *([] if "because" in text else ["the reason is not shown"])]


def _rollback_forms(admin: Any) -> Iterator[Sequence[str]]:
    """Request a rollback with invalid names, versions and reasons."""
    address = f"/api/v2/dags/{ROLLBACK_DAG}/dagRuns"
    good = {"lineage": "default", "version": "previous", "reason": "bad answers"}
    hostile: tuple[tuple[str, str | None], ...] = (
        ("version", "../../x"),
        ("version", "v-0123456789ab\n"),
        ("version", "v-0123456789ab/../../x"),
        ("version", "previous\n"),
        ("version", "$(id)"),
        ("lineage", "../x"),
        ("lineage", "default\n"),
        ("lineage", "default; id"),
        ("lineage", ""),
        ("reason", "x" * 501),
        ("reason", ""),
        ("reason", None),
    )
    for name, value in hostile:
        body = {"logical_date": None, "conf": {**good, name: value}}
        code = admin.post(address, json=body).status_code
        yield [] if code in (400, 422) else [f"{name}={str(value)[:40]!r}: {code}"]


def _other_sites(admin: Any) -> Iterator[Sequence[str]]:
    """Send requests that a page of another site can make an administrator's browser send."""
    address = f"/api/v2/dags/{ROLLBACK_DAG}/dagRuns"

    def count() -> int:
        return int(admin.get(address).json()["total_entries"])

    for content_type in _SIMPLE_TYPES:
        before = count()
        headers = {"Origin": EVIL, **({"Content-Type": content_type} if content_type else {})}
        admin.post(address, headers=headers, content=_TRIGGER.encode())
        yield [] if count() == before else [f"{content_type or 'no type'} starts a run"]
    for method in ("POST", "PATCH", "DELETE"):
        asked = {"Access-Control-Request-Method": method, "Origin": EVIL}
        headers = asked | {"Access-Control-Request-Headers": "content-type"}
        allowed = admin.options(address, headers=headers).headers
        origin = allowed.get("access-control-allow-origin")
        yield [f"{method} is allowed to {origin}"] if origin else []
    read = admin.get(address, headers={"Origin": EVIL}).headers
    yield ["answers can be read"] if "access-control-allow-origin" in read else []


def _passwords() -> Iterator[Sequence[str]]:
    """Try wrong passwords for an account of a team server, one after the other."""
    from team_login import throttle

    for number in range(200):
        with mock.patch.object(throttle, "WINDOW", throttle.WINDOW * 60):
            try:
                throttle.begin("ann", is_known=True)
            except throttle.TooManyFailuresError:
                yield []
            else:
                yield [f"password {number} is looked at"] if number >= 10 else []


if __name__ == "__main__":
    sys.exit(main())
