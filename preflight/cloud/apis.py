"""Calls Google Cloud's REST APIs, with the credentials of the account that will run the pipeline.

Endpoints can be overridden by the environment variables that gcloud also reads, such as
``CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import google.auth.transport.requests
import requests
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_SECONDS = (5, 20)
"""Timeouts of connecting and of reading."""

_ENDPOINTS = {
    "artifactregistry": "https://artifactregistry.googleapis.com/",
    "cloudresourcemanager": "https://cloudresourcemanager.googleapis.com/",
    "compute": "https://compute.googleapis.com/compute/v1/",
    "iam": "https://iam.googleapis.com/",
    "serviceusage": "https://serviceusage.googleapis.com/",
}
_SERVER_ERRORS = (429, 500, 502, 503, 504)
_DISABLED = "SERVICE_DISABLED"


class ApiError(RuntimeError):
    """An API refused a request; source: https://cloud.google.com/apis/design/errors."""

    def __init__(self, service: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{service} answers {status}: {message}")
        self.service = service
        self.status = status
        self.reason = reason

    @property
    def is_disabled(self) -> bool:
        """Return whether the project has not enabled the API."""
        return self.reason == _DISABLED

    @property
    def is_forbidden(self) -> bool:
        """Return whether the account may not make this request."""
        return self.status in (401, 403)

    @property
    def is_absent(self) -> bool:
        """Return whether the resource does not exist."""
        return self.status == 404


class ApiUnavailableError(RuntimeError):
    """An API does not answer at the moment."""


@dataclass(frozen=True)
class GoogleApis:
    """Google Cloud's APIs for one project.

    :param find_credentials: returns credentials; raises ``GoogleAuthError`` if there are none.
    """

    project_id: str
    find_credentials: Callable[[], Credentials]

    @property
    def credentials(self) -> Credentials:
        """Return credentials that have a token.

        :raises GoogleAuthError: there are none, or they yield no token.
        """
        if isinstance(self._credentials, GoogleAuthError):
            raise self._credentials
        return self._credentials

    @functools.cached_property
    def _credentials(self) -> Credentials | GoogleAuthError:
        # A failure is cached too: searching for credentials on the network takes seconds.
        try:
            found = self.find_credentials()
            if not found.valid:
                found.refresh(google.auth.transport.requests.Request())
        except GoogleAuthError as error:
            return error
        return found

    @property
    def member(self) -> str:
        """Return the account as IAM bindings name it; ``serviceAccount:ACCOUNT`` if unknown."""
        return f"serviceAccount:{self.account or 'ACCOUNT'}"

    @property
    def account(self) -> str | None:
        """Return the address of the service account; None for a person's own login."""
        return getattr(self.credentials, "service_account_email", None)

    def get(
        self, service: str, path: str, params: Mapping[str, str | list[str]] | None = None
    ) -> dict[str, Any]:
        """Return an API's response.

        :param service: name of the API, without ``.googleapis.com``.
        :param path: path below the API's root, such as ``v1/projects/P/services:batchGet``.
        :raises ApiError: the API refuses the request.
        :raises ApiUnavailableError: the API does not answer.
        """
        return self._call("GET", service, path, params=params)

    def held_permissions(self, service: str, resource: str, wanted: list[str]) -> set[str]:
        """Return the wanted permissions that the account has on a resource.

        :param resource: path to which ``:testIamPermissions`` is appended.
        :raises ApiError: as in :meth:`get`.
        :raises ApiUnavailableError: as in :meth:`get`.
        """
        path = f"{resource}:testIamPermissions"
        answer = self._call("POST", service, path, json={"permissions": wanted})
        return set(answer.get("permissions", []))

    def clock_skew(self) -> timedelta:
        """Return how far this machine's clock is ahead of Google's, to about a second.

        The request has no credentials, as a wrong clock invalidates these.

        :raises ApiUnavailableError: there is no answer, or it has no date.
        """
        url = _endpoint("serviceusage")
        try:
            answer = requests.head(url, timeout=TIMEOUT_SECONDS, allow_redirects=False)
            told = parsedate_to_datetime(answer.headers["Date"])
        except (requests.RequestException, KeyError, ValueError) as error:
            raise ApiUnavailableError(f"{url} tells no time: {error!r}") from error
        return datetime.now(UTC) - told

    @functools.cached_property
    def _session(self) -> google.auth.transport.requests.AuthorizedSession:
        session = google.auth.transport.requests.AuthorizedSession(self.credentials)
        retries = Retry(
            total=2,
            backoff_factor=0.5,
            status_forcelist=_SERVER_ERRORS,
            allowed_methods=("GET", "POST"),  # both only read here
            raise_on_status=False,
        )
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        return session

    def _call(self, method: str, service: str, path: str, **arguments: Any) -> dict[str, Any]:
        url = _endpoint(service) + path
        try:
            answer = self._session.request(method, url, timeout=TIMEOUT_SECONDS, **arguments)
        except (requests.RequestException, TransportError) as error:
            raise ApiUnavailableError(f"{service} does not answer: {error}") from error
        if answer.status_code in _SERVER_ERRORS:
            raise ApiUnavailableError(f"{service} answers {answer.status_code}")
        try:
            content: dict[str, Any] = answer.json()
        except requests.JSONDecodeError as error:
            raise ApiUnavailableError(f"{url} answers no JSON") from error
        if answer.ok:
            return content
        raise _error(service, answer.status_code, content)


def _endpoint(service: str) -> str:
    name = f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service.upper()}"
    return os.environ.get(name, _ENDPOINTS[service]).rstrip("/") + "/"


def _error(service: str, status: int, content: dict[str, Any]) -> ApiError:
    error = content.get("error", {})
    reasons = [detail["reason"] for detail in error.get("details", []) if "reason" in detail]
    return ApiError(service, status, reasons[0] if reasons else "", error.get("message", ""))
