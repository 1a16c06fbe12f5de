"""Exceptions that end a job of this package early; each knows its exit kind."""

from __future__ import annotations

from typing import ClassVar

from pipeline_config import ConfigError
from pipeline_store.formats import ExitKind, FormatError


class JobError(Exception):
    """A job cannot continue; the message has the rule, what was received and what to do."""

    exit_kind: ClassVar[ExitKind] = ExitKind.FAILED


class UserError(JobError):
    """The configuration or an argument has to change; a retry cannot help."""

    exit_kind = ExitKind.USER_ERROR


class BadDataError(JobError):
    """Records or checkpoints do not fit or do not verify; a retry cannot help."""

    exit_kind = ExitKind.BAD_DATA


class PreemptedError(JobError):
    """The process was asked to stop and shut down cleanly."""

    exit_kind = ExitKind.PREEMPTED


class NonFiniteLossError(JobError):
    """Training diverged too often to roll back again; the weights of this process are worthless."""


class LostWorkerError(JobError):
    """Another host of this training is gone; if it is restarted on all hosts, it continues."""

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

    TensorFlow's class is compared by name, as this must work if TensorFlow was never loaded. The
    TPU compiler reports a program that does not fit in the text of other errors.
    """
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "ResourceExhaustedError"
        or "RESOURCE_EXHAUSTED" in str(error)
    )
