"""Failures of TPU tasks: a kind for programs, a message for people, and whether Airflow retries."""

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
"""Remedies by failure kind, for the alert about a task that failed."""


class TpuTaskFailed(AirflowFailException):
    """A failure that another try of the task cannot fix."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(f"[{kind}] {text}")
        self.kind = kind
        self.remedy = REMEDIES[kind]


class TpuTaskRetry(AirflowException):
    """A failure that another try of the task may fix."""

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
"""Failure kinds of tasks by the exit kind of their job."""

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
    """Convert errors around a TPU to failures that Airflow and people understand.

    :param always_retry: let Airflow retry after any known error, because a TPU may be running.
    :raises TpuTaskFailed: another try cannot help; the task fails at once.
    :raises TpuTaskRetry: another try may help.
    """
    try:
        yield
    except Exception as error:
        failure = _failure(error, always_retry=always_retry)
        if failure is None:
            raise
        raise failure from error


def _failure(error: Exception, *, always_retry: bool) -> Exception | None:
    """Return the failure to raise instead; None: the error is not of a kind known here."""
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
    # Imported only after a failure: DAG files import this module, and these are slow to load.
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    return isinstance(error, TpuError | OSError | FormatError | GoogleAPIError | GoogleAuthError)
