"""Errors of the data jobs that a retry cannot fix, and errors whose words must not be quoted."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import ClassVar

from pipeline_config import ConfigError
from pipeline_config.unquoted import fault, one_line
from pipeline_store.formats import ExitKind, FormatError, JobFailure
from pipeline_store.local import UnwritableError
from pipeline_store.request_paths import OutsideRootsError


class JobError(Exception):
    """A job stops for a reason that its user has to remove; the message is one line for users."""

    exit_kind: ClassVar[ExitKind]


class UserError(JobError):
    """The request cannot be carried out: no input, no vocabulary, settings that do not fit."""

    exit_kind = ExitKind.USER_ERROR


class BadDataError(JobError):
    """Too much of the input cannot be read, or nothing of it can be used."""

    exit_kind = ExitKind.BAD_DATA


class MachineError(JobError):
    """The machine failed: disk, file system or memory. This says nothing about the input."""

    exit_kind = ExitKind.FAILED


# Errors that a retry cannot fix, or not immediately, so that an engine need not retry either.
JOB_ERRORS = (JobError, ConfigError, FormatError)


# Errors of Python and its libraries that quote the value that caused them.
_QUOTING = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,  # Arrow's, of a column that it cannot read
    TypeError,
    ValueError,
)
_NAMED_FRAMES = 3


class UnforeseenError(Exception):
    """The program failed on a file in an unforeseen way; a retry may or may not help."""


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Replace an unforeseen error by one that names the file and code lines, but quotes nothing.

    :raises UserError: the file turns out to be outside of what the request may read.
    :raises MachineError: the file system or the memory of this machine failed.
    :raises UnforeseenError: instead of an error that may quote the file.
    """
    try:
        yield
    except JOB_ERRORS:
        raise
    except OutsideRootsError as error:
        raise UserError(str(error)) from error
    except (OSError, MemoryError) as error:
        if not is_of_machine(error):
            raise
        raise MachineError(f"{one_line(uri)}: {machine_fault(error)}") from error
    except _QUOTING as error:
        frames = traceback.extract_tb(error.__traceback__)[-_NAMED_FRAMES:]
        where = ", ".join(f"{PurePath(one.filename).name}:{one.lineno}" for one in reversed(frames))
        raise UnforeseenError(
            f"{uri}: reading it ends with {fault(error)} in {where}, which is a mistake of this "
            "program. Leave the file out, and report these places."
        ) from None


def is_of_machine(error: Exception) -> bool:
    """Return whether the file system or the memory of this machine failed, and not a service."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) is not None


def machine_fault(error: Exception) -> str:
    """Return which part of the machine failed, where if known, and what to do about it.

    :param error: see :func:`is_of_machine`.
    """
    if not isinstance(error, OSError) or error.errno is None:
        return (
            "the memory of this machine is used up. Lower beam.max_num_workers or use a machine "
            "with more, and run again; what is done is kept."
        )
    if isinstance(error, UnwritableError):
        return f"{one_line(os.fsdecode(error.filename))}: {error.strerror}; what is done is kept."
    where = f" at {one_line(os.fsdecode(error.filename))}" if error.filename else ""
    remedy = _REMEDIES.get(error.errno, "See to that file system")
    return f"{os.strerror(error.errno)}{where}. {remedy}, and run again; what is done is kept."


_FREE_SPACE = (
    "Free space there (of a store: python -m model_registry prune; else where temporary files "
    "lie, TMPDIR)"
)
_REMEDIES = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EROFS: "Make that file system writable",
    errno.EACCES: "Give the account of this process the right to that file",
    errno.EPERM: "Give the account of this process the right to that file",
}


def failure_of(error: Exception) -> JobFailure:
    """Return one of the job's errors in the form that a worker hands over."""
    kind = error.exit_kind if isinstance(error, JobError) else ExitKind.USER_ERROR
    return JobFailure(exit_kind=kind, message=str(error))


def raise_failures(failures: Sequence[JobFailure]) -> None:
    """Raise the first failure, if there is one; bad data before others.

    :raises BadDataError: some data cannot be read or used.
    :raises MachineError: the machine failed, and there is no bad data.
    :raises UserError: the request cannot be carried out, and nothing else failed.
    """
    ordered = sorted(failures, key=lambda failure: (failure.exit_kind, failure.message))
    if not ordered:
        return
    more = f" ({len(ordered) - 1} more failures)" if len(ordered) > 1 else ""
    kinds = {kind.exit_kind: kind for kind in (UserError, BadDataError, MachineError)}
    raise kinds[ordered[0].exit_kind](ordered[0].message + more)
