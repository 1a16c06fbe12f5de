"""The errors an API method answers with: a canonical gRPC code and a message."""

from __future__ import annotations

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


def stockout(zone: str) -> ApiError:
    """The zone has no capacity left; the quota is not the reason."""
    return ApiError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where '
        "Cloud TPU Nodes are offered",
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
