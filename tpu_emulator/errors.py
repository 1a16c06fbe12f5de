"""The errors an API method answers with: a canonical gRPC code and a message."""

from __future__ import annotations

import re
from dataclasses import dataclass

import grpc


class ApiError(Exception):
    """Ends the call with this canonical code and message."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def number(self) -> int:
        """The code as the integer that `google.rpc.Status` carries."""
        return int(self.code.value[0])

    def as_arguments(self) -> dict[str, str]:
        """The arguments with which `api_error` builds the same error again."""
        return {"code": self.code.name, "message": self.message}


@dataclass(frozen=True)
class Refusal:
    """A create that will fail: with which error, and where it shows.

    `shape` is `sync` (the call), `lro` (its operation), `state` (the queued resource becomes
    FAILED) or `wait` (it only waits).
    """

    shape: str
    error: ApiError


def api_error(code: str, message: str) -> ApiError:
    """The error of this code name."""
    return ApiError(grpc.StatusCode[code], message)


def invalid_argument(message: str) -> ApiError:
    """The request itself is wrong: retrying it cannot help."""
    return ApiError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(name: str) -> ApiError:
    """No resource of this name exists (any more)."""
    return ApiError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")


def already_exists(name: str) -> ApiError:
    """The name is taken, or claimed by a queued resource that is not deleted."""
    return ApiError(grpc.StatusCode.ALREADY_EXISTS, f"Resource '{name}' already exists")


def failed_precondition(message: str) -> ApiError:
    """The resource is in a state that does not allow the call."""
    return ApiError(grpc.StatusCode.FAILED_PRECONDITION, message)


def busy(name: str, state: str) -> ApiError:
    """Another operation on the resource is in flight; the caller retries later."""
    return ApiError(
        grpc.StatusCode.ABORTED,
        f"unable to queue the operation: '{name}' is {state}, another operation is in flight",
    )


def permission_denied(method: str, name: str) -> ApiError:
    """The caller may not use this method on this resource."""
    verb, _, kind = re.sub("(?<=[a-z])([A-Z])", r" \1", method).partition(" ")
    kind = kind.replace(" ", "").removesuffix("s")
    permission = f"tpu.{kind[:1].lower()}{kind[1:]}s.{verb.lower()}"
    return ApiError(
        grpc.StatusCode.PERMISSION_DENIED,
        f"Permission '{permission}' denied on resource '//tpu.googleapis.com/{name}' "
        "(or it may not exist)",
    )


def stockout(zone: str) -> ApiError:
    """The zone has no capacity left; the quota is not the reason."""
    return ApiError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where '
        "Cloud TPU Nodes are offered",
    )


def quota_exceeded(zone: str, family: str, limit: int) -> ApiError:
    """The project may not have so many chips; capacity is not the reason."""
    return ApiError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"Quota limit 'TPU{family.title().replace('_', '')}PerProjectPerZoneForTPUAPI' has been "
        f"exceeded. Limit: {limit} in zone {zone}.",
    )


def code_named(name: str) -> grpc.StatusCode:
    """The gRPC code of a name such as `UNAVAILABLE`.

    Raises:
        ApiError: INVALID_ARGUMENT when no such code exists.
    """
    try:
        return grpc.StatusCode[name.upper()]
    except KeyError:
        known = ", ".join(code.name for code in grpc.StatusCode if code.name != "OK")
        raise invalid_argument(f"unknown status code {name!r}; known: {known}") from None
