"""Turns errors of the Cloud TPU API into ours.

Stockout and quota share one status code; only the message tells them apart.
Source of the codes: https://cloud.google.com/tpu/docs/troubleshooting/trouble-tpu-errors
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError, TransportError

from tpu_lifecycle.service.backend import (
    TpuCapacityError,
    TpuConflictError,
    TpuError,
    TpuInvalidRequestError,
    TpuNotFoundError,
    TpuPermissionError,
    TpuQuotaError,
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
        TpuPermissionError,
        "Check the credentials of the Airflow connection.",
    ),
}


_CREATE_CODES: dict[grpc.StatusCode, tuple[type[TpuError], str]] = _CODES | {
    # Of a deletion it means "not now": there is something that changes. Here there is nothing yet.
    grpc.StatusCode.FAILED_PRECONDITION: (
        TpuInvalidRequestError,
        "Check project, network and reservation of the tpu settings.",
    ),
}


@contextmanager
def api_call(what: str, *, creates: bool = False) -> Iterator[None]:
    """Turn what the API client raises inside the block into a :class:`TpuError`.

    :param what: the call and its resource, for the message.
    :param creates: it asks for a new resource.
    """
    try:
        yield
    except exceptions.GoogleAPICallError as error:
        status = error.grpc_status_code or grpc.StatusCode.UNKNOWN
        raise to_tpu_error(status, error.message, what, creates=creates) from error
    except TransportError as error:
        raise TpuUnavailableError(f"{what}: no credentials now: {error}") from error
    except GoogleAuthError as error:
        raise TpuPermissionError(f"{what}: no usable credentials: {error}") from error


def to_tpu_error(
    status: grpc.StatusCode, message: str, what: str, *, creates: bool = False
) -> TpuError:
    """Return the error for a status of the API.

    :param creates: it is the answer to a call that asks for a new resource.
    """
    text = f"{what}: {status.name}: {message}"
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _exhausted(message, text)
    if status is grpc.StatusCode.FAILED_PRECONDITION and "capacity" in message.lower():
        return TpuCapacityError(text)
    codes = _CREATE_CODES if creates else _CODES
    kind, advice = codes.get(status, (TpuUnavailableError, ""))
    return kind(f"{text} {advice}".rstrip())


def failure_of_creation(code: int, message: str, what: str) -> TpuError:
    """Return why a creation that was accepted failed: from an operation or ``failed_data.error``.

    Whatever is not plainly the request's or the account's fault means that the zone had nothing to
    give within the queue timeout: internal errors are a known form of stockout too.
    """
    status = next((s for s in grpc.StatusCode if s.value[0] == code), grpc.StatusCode.UNKNOWN)
    error = to_tpu_error(status, message, what)
    return TpuCapacityError(str(error)) if isinstance(error, TpuUnavailableError) else error


def _exhausted(message: str, text: str) -> TpuError:
    lowered = message.lower()
    if "per minute" in lowered or "rate limit" in lowered or "ratelimit" in lowered:
        return TpuUnavailableError(f"{text} The API is called too often; trying again.")
    if "quota" in lowered or "perproject" in lowered:
        return TpuQuotaError(f"{text} Ask for quota in this zone, or name other tpu.zones.")
    return TpuCapacityError(text)
