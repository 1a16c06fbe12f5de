"""How TPU tasks fail: a kind for programs, a message for people, and whether Airflow may retry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from pipeline_alerts.causes import Remedy
from pipeline_alerts.errors import FailureKind
from pipeline_config import ConfigError
from pipeline_store.formats import ExitKind, FormatError
from tpu_lifecycle.control.capacity import QuotaExhaustedError
from tpu_lifecycle.records.budgets import BootFailureError, BudgetError, PreemptionBudgetError
from tpu_lifecycle.records.reservation import (
    ExpiredError,
    ReleasedError,
    ReservationError,
    SupersededError,
)
from tpu_lifecycle.service.backend import (
    TpuCapacityError,
    TpuConflictError,
    TpuError,
    TpuInvalidRequestError,
    TpuNotFoundError,
    TpuPermissionError,
    TpuQuotaError,
    TpuQuotaTooSmallError,
)

REMEDIES = {
    FailureKind.STOCKOUT: Remedy.WAIT_FOR_TPUS,
    FailureKind.QUOTA: Remedy.ASK_FOR_QUOTA,
    FailureKind.PERMISSION: Remedy.MEND_AND_CLEAR,
    FailureKind.INVALID_REQUEST: Remedy.CHANGE_REQUEST,
    FailureKind.CONFLICT: Remedy.MEND_AND_CLEAR,
    FailureKind.PREEMPTION: Remedy.RESERVE_AGAIN,
    FailureKind.BUDGET: Remedy.RESERVE_AGAIN,
    FailureKind.USER_ERROR: Remedy.CHANGE_REQUEST,
    FailureKind.JOB: Remedy.LOOK_AT_JOB,
    FailureKind.RELEASED: Remedy.RESERVE_AGAIN,
    FailureKind.INFRASTRUCTURE: Remedy.LOOK_AT_SERVICES,
}
"""What helps, for the alert about a task that failed."""


class TpuTaskFailed(AirflowFailException):
    """Another try of the task cannot help."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(f"[{kind}] {text}")
        self.kind = kind
        self.remedy = REMEDIES[kind]


class TpuTaskRetry(AirflowException):
    """Another try of the task may help."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(f"[{kind}] {text}")
        self.kind = kind
        self.remedy = REMEDIES[kind]


JOB_KINDS = {
    ExitKind.USER_ERROR: FailureKind.USER_ERROR,
    ExitKind.BAD_DATA: FailureKind.USER_ERROR,
    ExitKind.OUT_OF_MEMORY: FailureKind.USER_ERROR,
    ExitKind.KILLED: FailureKind.BUDGET,
    ExitKind.DEADLINE: FailureKind.BUDGET,
    ExitKind.HUNG: FailureKind.BUDGET,
    ExitKind.FAILED: FailureKind.JOB,
}
"""What a job's end means for its task."""

_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (TpuCapacityError, FailureKind.STOCKOUT),
    (TpuQuotaError, FailureKind.QUOTA),
    (TpuQuotaTooSmallError, FailureKind.QUOTA),
    (QuotaExhaustedError, FailureKind.QUOTA),
    (TpuPermissionError, FailureKind.PERMISSION),
    (TpuInvalidRequestError, FailureKind.INVALID_REQUEST),
    (TpuNotFoundError, FailureKind.INVALID_REQUEST),
    (TpuConflictError, FailureKind.CONFLICT),
    (PreemptionBudgetError, FailureKind.PREEMPTION),
    (BootFailureError, FailureKind.INFRASTRUCTURE),
    (BudgetError, FailureKind.BUDGET),
    (ExpiredError, FailureKind.BUDGET),
    (SupersededError, FailureKind.INFRASTRUCTURE),
    (ReleasedError, FailureKind.RELEASED),
    (ReservationError, FailureKind.USER_ERROR),
    (ConfigError, FailureKind.USER_ERROR),
    (FileNotFoundError, FailureKind.USER_ERROR),
)


@contextmanager
def typed_failures(*, always_retry: bool = False) -> Iterator[None]:
    """Turn what can go wrong around a TPU into failures that Airflow and people understand.

    :param always_retry: whatever it is, another try may help: a TPU may be running.
    :raises TpuTaskFailed: another try cannot help; the task fails at once.
    :raises TpuTaskRetry: it can.
    """
    try:
        yield
    except Exception as error:
        failure = _failure(error, always_retry=always_retry)
        if failure is None:
            raise
        raise failure from error


def _failure(error: Exception, *, always_retry: bool) -> Exception | None:
    """Return what to raise instead; None for what is not ours to explain."""
    kind = next((kind for known, kind in _KINDS if isinstance(error, known)), None)
    if kind is None and _is_of_store_or_service(error):
        kind = FailureKind.INFRASTRUCTURE
    if kind is None:
        return None
    may_retry = always_retry or _may_pass(error)
    make = TpuTaskRetry if may_retry else TpuTaskFailed
    return make(kind, f"{type(error).__name__}: {error}")


def _may_pass(error: Exception) -> bool:
    if isinstance(error, TpuError):
        return error.retryable
    if isinstance(error, SupersededError):
        return True  # the next try goes on with what the other process made
    lasting = tuple(known for known, _ in _KINDS)
    return not isinstance(error, (*lasting, FormatError))


def _is_of_store_or_service(error: Exception) -> bool:
    # Imported when something has failed: DAG files import this module, and these are slow.
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    return isinstance(error, TpuError | OSError | FormatError | GoogleAPIError | GoogleAuthError)
