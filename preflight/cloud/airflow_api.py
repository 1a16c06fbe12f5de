"""Reads version and connections of a running Airflow through its REST API, and checks them.

The version is public. Reading connections takes a token, from the environment variable that
``airflowctl`` also reads: ``AIRFLOW_CLI_TOKEN``.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Mapping

import requests

from pipeline_config.settings import Settings
from preflight.cloud.versions import installed_airflow
from preflight.findings import Finding, failed, not_checked, ok, warning

TOKEN = "AIRFLOW_CLI_TOKEN"  # noqa: S105 - the name of a variable
_TIMEOUT_SECONDS = 20

Lookup = Callable[[str], bool | None]
"""Returns whether Airflow has a connection with this id; None if it is unknown."""


class AirflowUnavailableError(RuntimeError):
    """Airflow's REST API does not answer or refuses the request."""


def airflow_version(url: str | None) -> str | None:
    """Return the version of the Airflow at a URL, or of the one that is installed here.

    :param url: such as ``https://airflow.example.com``; None: the installed one.
    :raises AirflowUnavailableError: the version cannot be read.
    """
    if url is None:
        return installed_airflow()
    answer = _get(url, "version")
    if not answer.ok:
        raise AirflowUnavailableError(f"{url} answers {answer.status_code} when asked its version")
    return str(answer.json()["version"])


def connection_lookup(url: str | None, environment: Mapping[str, str] = os.environ) -> Lookup:
    """Return a lookup of connections in the environment, then in Airflow's REST API.

    Connections in a secrets backend, which Airflow's workers find, are not found here.

    :param url: URL of Airflow; None: only the environment is searched.
    """

    def has(conn_id: str) -> bool | None:
        if f"AIRFLOW_CONN_{conn_id.upper()}" in environment:
            return True
        token = environment.get(TOKEN)
        if url is None or not token:
            return None
        name = urllib.parse.quote(conn_id, safe="")
        answer = _get(url, f"connections/{name}", {"Authorization": f"Bearer {token}"})
        if answer.status_code in (200, 404):
            return answer.ok
        raise AirflowUnavailableError(f"{url} answers {answer.status_code} for its connections")

    return has


def _get(url: str, path: str, headers: Mapping[str, str] | None = None) -> requests.Response:
    address = f"{url.rstrip('/')}/api/v2/{path}"
    try:
        return requests.get(address, headers=headers, timeout=_TIMEOUT_SECONDS)
    except requests.RequestException as error:
        raise AirflowUnavailableError(f"{url} does not answer: {error}") from error


_HOW_TO_ASK = f"name Airflow by --airflow-url, with a token in {TOKEN}"


def cloud_connection_finding(settings: Settings, lookup: Lookup) -> Finding:
    """Check that Airflow has the connection to Google Cloud."""
    conn_id = settings.gcp_conn_id
    has = lookup(conn_id)
    if has is None:
        return not_checked(f"nobody here knows Airflow's connection {conn_id}.", _HOW_TO_ASK)
    if not has:
        return failed(
            f"Airflow has no connection {conn_id}.",
            f"airflow connections add {conn_id} --conn-type google_cloud_platform --conn-extra "
            """'{"project": "PROJECT"}'""",
        )
    return ok(conn_id)


def alerts_finding(settings: Settings, lookup: Lookup) -> Finding:
    """Check that the connections for alerts exist; whether they deliver, only a delivery shows."""
    names = settings.alert_conn_ids
    if not names:
        return warning(
            "REPRETRAIN_ALERT_CONN_IDS is empty: alerts are only logged, and nobody is told.",
            "airflow connections add alerts_mail --conn-json ..., and "
            "export REPRETRAIN_ALERT_CONN_IDS=alerts_mail (docs/operate/alerts.md)",
        )
    told = {name: lookup(name) for name in names}
    if missing := [name for name, has in told.items() if has is False]:
        return failed(
            f"REPRETRAIN_ALERT_CONN_IDS names {', '.join(missing)}, which Airflow does not have.",
            f"airflow connections add {missing[0]} --conn-json ... (docs/operate/alerts.md)",
        )
    if unknown := [name for name, has in told.items() if has is None]:
        return not_checked(
            f"nobody here knows Airflow's connection {', '.join(unknown)}.",
            f"{_HOW_TO_ASK}; or python -m pipeline_alerts test",
        )
    return ok(", ".join(names))
