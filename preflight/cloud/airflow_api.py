"""Asks a running Airflow, here or elsewhere, by its REST API.

Its version it tells everybody. For its connections it wants a token, from the environment variable
that ``airflowctl`` reads too: ``AIRFLOW_CLI_TOKEN``.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Mapping

import requests

from preflight.cloud.versions import installed_airflow

TOKEN = "AIRFLOW_CLI_TOKEN"  # noqa: S105 - the name of a variable
_TIMEOUT_SECONDS = 20

Lookup = Callable[[str], bool | None]
"""Tells whether Airflow has a connection of this id; None when nobody can tell."""


class AirflowUnavailableError(RuntimeError):
    """Airflow's REST API does not answer, or refuses."""


def airflow_version(url: str | None) -> str | None:
    """Return the version of the Airflow at an address, or of the one that is installed here.

    :param url: such as ``https://airflow.example.com``; None: the installed one.
    :raises AirflowUnavailableError: it does not tell.
    """
    if url is None:
        return installed_airflow()
    answer = _get(url, "version")
    if not answer.ok:
        raise AirflowUnavailableError(f"{url} answers {answer.status_code} when asked its version")
    return str(answer.json()["version"])


def connection_lookup(url: str | None, environment: Mapping[str, str] = os.environ) -> Lookup:
    """Return what tells which connections there are: the environment, else Airflow's REST API.

    What is in a secrets backend Airflow's workers find, and this does not.

    :param url: of Airflow; None: only the environment is looked at.
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
