"""How the data jobs say that trying again cannot help, and what of an error they do not say."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import ClassVar

from pipeline_config import ConfigError
from pipeline_config.unquoted import fault
from pipeline_store.formats import ExitKind, FormatError, JobFailure
from pipeline_store.local import UnwritableError
from pipeline_store.request_paths import OutsideRootsError


class JobError(Exception):
    """A job stops for a reason its user has to remove; the message is one line for them."""

    exit_kind: ClassVar[ExitKind]


class UserError(JobError):
    """The request cannot be carried out: no input, no vocabulary, settings that do not fit."""

    exit_kind = ExitKind.USER_ERROR


class BadDataError(JobError):
    """Too much of the input cannot be read, or nothing of it can be used."""

    exit_kind = ExitKind.BAD_DATA


# What no second try can remove, so that an engine need not try again either.
JOB_ERRORS = (JobError, ConfigError, FormatError, UnwritableError)


# Python's and its libraries' own, which quote the value that they broke on.
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
    """A file is of a kind that the program breaks on; trying again may help as little as not."""


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Say of an error that nobody foresaw which file it is about, and where, but not its words.

    :raises UserError: the file turns out to lie outside of what the request may read.
    :raises UnforeseenError: instead of one that may quote the file.
    """
    try:
        yield
    except JOB_ERRORS:
        raise
    except OutsideRootsError as error:
        raise UserError(str(error)) from error
    except _QUOTING as error:
        frames = traceback.extract_tb(error.__traceback__)[-_NAMED_FRAMES:]
        where = ", ".join(f"{PurePath(one.filename).name}:{one.lineno}" for one in reversed(frames))
        raise UnforeseenError(
            f"{uri}: reading it ends with {fault(error)} in {where}, which is a mistake of this "
            "program. Leave the file out, and report these places."
        ) from None


def failure_of(error: Exception) -> JobFailure:
    """Return one of the job's errors as what a worker can hand over."""
    kind = error.exit_kind if isinstance(error, JobError) else ExitKind.USER_ERROR
    return JobFailure(exit_kind=kind, message=str(error))


def raise_failures(failures: Sequence[JobFailure]) -> None:
    """Raise the first failure, if there is one; bad data before others.

    :raises UserError: something of the request cannot be carried out.
    :raises BadDataError: something cannot be read.
    """
    ordered = sorted(failures, key=lambda failure: (failure.exit_kind, failure.message))
    if not ordered:
        return
    more = f" ({len(ordered) - 1} more failures)" if len(ordered) > 1 else ""
    kinds = {kind.exit_kind: kind for kind in (UserError, BadDataError)}
    raise kinds[ordered[0].exit_kind](ordered[0].message + more)
