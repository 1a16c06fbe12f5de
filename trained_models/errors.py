"""Why a job of this package ends early, as exceptions that know their exit kind."""

from __future__ import annotations

from typing import ClassVar

from pipeline_config import ConfigError
from pipeline_store.formats import ExitKind, FormatError


class JobError(Exception):
    """A job cannot go on; the message says which rule, what was received and what to do."""

    exit_kind: ClassVar[ExitKind] = ExitKind.FAILED


class UserError(JobError):
    """The configuration or an argument has to change; trying again cannot help."""

    exit_kind = ExitKind.USER_ERROR


class BadDataError(JobError):
    """Records or checkpoints do not fit or do not verify; trying again cannot help."""

    exit_kind = ExitKind.BAD_DATA


class PreemptedError(JobError):
    """The process was asked to stop and did so in good order."""

    exit_kind = ExitKind.PREEMPTED


class NonFiniteLossError(JobError):
    """Training left the range of numbers; the weights of this process are worthless."""


class LostWorkerError(JobError):
    """Another machine of this training is gone; started again on all, it goes on."""

    exit_kind = ExitKind.KILLED


class LostHolderError(JobError):
    """Another attempt holds the run, so this one may not commit anything."""


def exit_kind_of(error: BaseException) -> ExitKind:
    """Return the exit kind for any exception that ends a job."""
    if isinstance(error, JobError):
        return error.exit_kind
    if isinstance(error, ConfigError | FileNotFoundError):
        return ExitKind.USER_ERROR
    if isinstance(error, FormatError):
        return ExitKind.BAD_DATA
    if is_out_of_memory(error):
        return ExitKind.OUT_OF_MEMORY
    return ExitKind.FAILED


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether host or device memory ran out.

    TensorFlow's class is compared by name, as this must work where TensorFlow was never loaded. The
    TPU compiler reports a program that does not fit inside the text of other errors.
    """
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "ResourceExhaustedError"
        or "RESOURCE_EXHAUSTED" in str(error)
    )
