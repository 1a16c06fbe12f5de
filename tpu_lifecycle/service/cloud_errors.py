"""Turns errors of the Cloud TPU API into ours.

Stockout, quota and request rate share one status code; only the message tells them apart.
Source of the codes: https://cloud.google.com/tpu/docs/troubleshooting/trouble-tpu-errors
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

from tpu_lifecycle.service.backend import (
    TpuAccessError,
    TpuCapacityError,
    TpuConflictError,
    TpuError,
    TpuInvalidRequestError,
    TpuNotFoundError,
    TpuPermissionError,
    TpuQuotaError,
    TpuQuotaTooSmallError,
    TpuUnavailableError,
)

_CODES: dict[grpc.StatusCode, tuple[type[TpuError], str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (
        TpuInvalidRequestError,
        "Check tpu.accelerator_type, tpu.runtime_version and tpu.zones.",
    ),
    grpc.StatusCode.OUT_OF_RANGE: (TpuInvalidRequestError, "Check the tpu settings."),
    grpc.StatusCode.UNIMPLEMENTED: (TpuError, "Check the API endpoint."),
    grpc.StatusCode.NOT_FOUND: (TpuNotFoundError, "Check project, zone and reservation."),
    grpc.StatusCode.ALREADY_EXISTS: (TpuConflictError, ""),
    grpc.StatusCode.PERMISSION_DENIED: (
        TpuPermissionError,
        "Does the account have roles/tpu.admin, and do project and zone exist?",
    ),
    grpc.StatusCode.UNAUTHENTICATED: (
        TpuAccessError,
        "Check the credentials of the Airflow connection.",
    ),
}


_CREATE_CODES: dict[grpc.StatusCode, tuple[type[TpuError], str]] = _CODES | {
    # For a deletion it means "not now": the resource is changing. A creation has no resource yet.
    grpc.StatusCode.FAILED_PRECONDITION: (
        TpuInvalidRequestError,
        "Check project, network and reservation of the tpu settings.",
    ),
}


_RATE = re.compile(
    r"per\s*(\d+\s*)?(second|minute|hour|day)|rate\W?limit|quota.*\brequests\b", re.IGNORECASE
)
"""A limit of calls, not of chips, as in ``Quota exceeded … 'Write requests per 100 seconds'``."""

_LIMIT = re.compile(r"\blimit:?\s+(\d[\d,]*)", re.IGNORECASE)
"""How many chips a quota allows in all, as in ``Limit: 8 in zone us-central1-a``."""


@contextmanager
def api_call(what: str, *, creates: bool = False, chips: int = 0) -> Iterator[None]:
    """Turn what the API client raises inside the block into a :class:`TpuError`.

    A denied permission is lasting only for a creation: what the account now reads or deletes, it
    once obtained.

    :param what: the call and its resource, for the message.
    :param creates: the call requests a new resource.
    :param chips: how many the resource has.
    """
    try:
        yield
    except exceptions.GoogleAPICallError as error:
        status = error.grpc_status_code or grpc.StatusCode.UNKNOWN
        ours = to_tpu_error(status, error.message, what, creates=creates, chips=chips)
        if isinstance(ours, TpuPermissionError) and not creates:
            ours = TpuAccessError(str(ours))
        raise ours from error
    except TransportError as error:
        raise TpuUnavailableError(f"{what}: no credentials now: {error}") from error
    except GoogleAuthError as error:
        lasting = creates and not isinstance(error, RefreshError)
        kind = TpuPermissionError if lasting else TpuAccessError
        raise kind(f"{what}: no usable credentials: {error}") from error


def to_tpu_error(
    status: grpc.StatusCode, message: str, what: str, *, creates: bool = False, chips: int = 0
) -> TpuError:
    """Return the error for a status of the API.

    :param creates: it is the answer to a call that requests a new resource.
    :param chips: how many are requested; 0: unknown.
    """
    text = f"{what}: {status.name}: {message}"
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _exhausted(message, text, chips)
    if status is grpc.StatusCode.FAILED_PRECONDITION and "capacity" in message.lower():
        return TpuCapacityError(text)
    codes = _CREATE_CODES if creates else _CODES
    kind, advice = codes.get(status, (TpuUnavailableError, ""))
    return kind(f"{text} {advice}".rstrip())


def failure_of_creation(code: int, message: str, what: str, *, chips: int) -> TpuError:
    """Return why a creation that was accepted failed: from an operation or ``failed_data.error``.

    Any error that is not plainly the request's or the account's fault means that the zone had no
    capacity within the queue timeout: internal errors are a known form of stockout too.
    """
    status = next((s for s in grpc.StatusCode if s.value[0] == code), grpc.StatusCode.UNKNOWN)
    error = to_tpu_error(status, message, what, chips=chips)
    return TpuCapacityError(str(error)) if isinstance(error, TpuUnavailableError) else error


def _exhausted(message: str, text: str, chips: int) -> TpuError:
    if _RATE.search(message):
        return TpuUnavailableError(f"{text} The API is called too often; trying again.")
    if "quota" not in message.lower() and "perproject" not in message.lower():
        return TpuCapacityError(text)
    stated = _LIMIT.search(message)
    if stated and int(stated[1].replace(",", "")) < chips:
        # Some families' quotas count cores, two per chip: then the limit is even smaller.
        return TpuQuotaTooSmallError(
            f"{text} {chips} chips are asked for. Ask for quota in this zone, or name other "
            "tpu.zones."
        )
    return TpuQuotaError(f"{text} Others use it, or the service has not noted a deletion yet.")
