from __future__ import annotations

import grpc
import pytest
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError

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
from tpu_lifecycle.service.cloud_errors import api_call, failure_of_creation, to_tpu_error

NO_CAPACITY = "There is no more capacity in the zone"
NO_QUOTA = "Quota limit 'TPUV5sLitepodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8"


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        ("RESOURCE_EXHAUSTED", NO_CAPACITY, TpuCapacityError),
        ("RESOURCE_EXHAUSTED", NO_QUOTA, TpuQuotaError),
        (
            "RESOURCE_EXHAUSTED",
            "Quota exceeded for quota metric 'Write requests per minute'",
            TpuUnavailableError,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "Quota exceeded for limit 'Queries per 100 seconds'. Limit: 5",
            TpuUnavailableError,
        ),
        ("RESOURCE_EXHAUSTED", "Quota 'WriteRequestsPerMinutePerProject'", TpuUnavailableError),
        ("FAILED_PRECONDITION", "insufficient reserved capacity", TpuCapacityError),
        ("FAILED_PRECONDITION", "the resource is SUSPENDING", TpuUnavailableError),
        ("INVALID_ARGUMENT", "no such type", TpuInvalidRequestError),
        ("NOT_FOUND", "reservation not found", TpuNotFoundError),
        ("ALREADY_EXISTS", "exists", TpuConflictError),
        ("PERMISSION_DENIED", "no", TpuPermissionError),
        (
            "PERMISSION_DENIED",
            "Permission denied on 'locations/x' (or it may not exist)",
            TpuPermissionError,
        ),
        ("UNIMPLEMENTED", "unknown method", TpuError),
        ("UNAUTHENTICATED", "no", TpuAccessError),
        ("UNAVAILABLE", "later", TpuUnavailableError),
        ("INTERNAL", "oops", TpuUnavailableError),
        ("ABORTED", "unable to queue the operation", TpuUnavailableError),
        ("DEADLINE_EXCEEDED", "slow", TpuUnavailableError),
    ],
)
def test_each_refusal_has_its_class(code: str, message: str, expected: type[TpuError]) -> None:
    error = to_tpu_error(grpc.StatusCode[code], message, "CreateQueuedResource x")
    assert type(error) is expected
    assert "CreateQueuedResource x" in str(error)
    assert message in str(error)


@pytest.mark.parametrize(
    ("message", "chips", "expected"),
    [
        (NO_QUOTA, 8, TpuQuotaError),
        (NO_QUOTA, 16, TpuQuotaTooSmallError),
        ("Quota 'TPUPerProjectPerRegion' exhausted. Limit 10,000 in region x", 256, TpuQuotaError),
        ("Quota 'TPUPerProjectPerRegion' exhausted. Limit 0 in x", 1, TpuQuotaTooSmallError),
        ("Quota limit 'TPUV5PerProjectPerZoneForTPUAPI'", 8, TpuQuotaError),
        ("There is no more capacity. Limit: 0", 8, TpuCapacityError),
    ],
)
def test_a_quota_refuses_for_good_only_if_its_limit_is_below_the_request(
    message: str, chips: int, expected: type[TpuError]
) -> None:
    status = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert type(to_tpu_error(status, message, "x", creates=True, chips=chips)) is expected
    assert type(failure_of_creation(8, message, "x", chips=chips)) is expected


def test_a_precondition_that_fails_is_an_answer_to_a_create_call() -> None:
    refused = exceptions.FailedPrecondition("the API is not enabled")  # type: ignore[no-untyped-call]
    with pytest.raises(TpuInvalidRequestError, match="not enabled"), api_call("x", creates=True):
        raise refused
    with pytest.raises(TpuUnavailableError), api_call("x"):
        raise refused


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (8, NO_CAPACITY, TpuCapacityError),
        (8, NO_QUOTA, TpuQuotaError),
        (4, "the queueing policy expired", TpuCapacityError),
        (13, "an internal error", TpuCapacityError),
        (3, "wrong type", TpuInvalidRequestError),
        (99, "a code from the future", TpuCapacityError),
    ],
)
def test_a_failed_queued_resource_has_a_reason(
    code: int, message: str, expected: type[TpuError]
) -> None:
    assert type(failure_of_creation(code, message, "x", chips=8)) is expected


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (exceptions.ServiceUnavailable("x"), TpuUnavailableError),
        (TransportError("no route"), TpuUnavailableError),
        (DefaultCredentialsError("none"), TpuAccessError),
        (exceptions.PermissionDenied("x"), TpuAccessError),
        (exceptions.Unauthenticated("x"), TpuAccessError),
    ],
)
def test_client_errors_become_ours(raised: Exception, expected: type[TpuError]) -> None:
    with pytest.raises(expected, match="GetNode x"), api_call("GetNode x"):
        raise raised


@pytest.mark.parametrize(
    ("raised", "may_pass"),
    [
        (exceptions.PermissionDenied("x"), False),
        (DefaultCredentialsError("none"), False),
        (exceptions.Unauthenticated("x"), True),
        (RefreshError("expired"), True),
    ],
)
def test_only_who_asks_for_a_tpu_is_refused_for_good(raised: Exception, may_pass: bool) -> None:
    with pytest.raises(TpuPermissionError) as caught, api_call("CreateNode x", creates=True):
        raise raised
    assert caught.value.retryable is may_pass


def test_only_what_may_pass_is_retryable() -> None:
    kinds = [*TpuError.__subclasses__(), TpuAccessError]
    retryable = {kind for kind in kinds if kind.retryable}
    assert retryable == {TpuAccessError, TpuCapacityError, TpuQuotaError, TpuUnavailableError}
