"""Sends requests to Airflow's REST API: with login, errors that name the request, no proxies."""

from __future__ import annotations

from typing import Any, Self

import httpx

REQUEST_SECONDS = 30.0


class AirflowApiError(RuntimeError):
    """Airflow refused a request or did not answer.

    :ivar status: HTTP status, or None when there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class AirflowSession:
    """A session with one Airflow, logged in at the first request and again when the login expires.

    :param base_url: such as ``http://127.0.0.1:8080``.
    :param user: user of the simple auth manager.
    :param password: the user's password.

    Every method raises :class:`AirflowApiError` if Airflow refuses or does not answer.
    """

    def __init__(self, base_url: str, user: str, password: str) -> None:
        self.base_url = base_url
        self._login = {"username": user, "password": password}
        # trust_env: a proxy from the caller's shell cannot reach the loopback interface.
        self._client = httpx.Client(base_url=base_url, timeout=REQUEST_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def login(self) -> str:
        """Log in and return the token; browsers take it as the cookie ``_token``."""
        answer = self._send("POST", "/auth/token", json=self._login)
        token = str(_checked(answer)["access_token"])
        self._client.headers["Authorization"] = f"Bearer {token}"
        return token

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Send any request below ``/api/v2`` and return the decoded answer.

        :param method: HTTP method.
        :param path: such as ``/dags``.
        :param options: passed to httpx, such as ``json`` and ``params``.
        """
        if "Authorization" not in self._client.headers:
            self.login()
        answer = self._send(method, f"/api/v2{path}", **options)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self.login()
            answer = self._send(method, f"/api/v2{path}", **options)
        return _checked(answer)

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise AirflowApiError(
                f"{method} {self.base_url}{path}: no answer ({error!r}). Is the stack up?"
            ) from error


def _checked(answer: httpx.Response) -> Any:
    if answer.is_success:
        return answer.json() if answer.content else None
    request = answer.request
    raise AirflowApiError(
        f"{request.method} {request.url}: status {answer.status_code}: {answer.text}",
        answer.status_code,
    )
