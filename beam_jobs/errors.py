"""How the data jobs say that trying again cannot help."""

from __future__ import annotations

from typing import ClassVar

from pipeline_store.formats import ExitKind


class JobError(Exception):
    """A job stops for a reason its user has to remove; the message is one line for them."""

    exit_kind: ClassVar[ExitKind]


class UserError(JobError):
    """The request cannot be carried out: no input, no vocabulary, settings that do not fit."""

    exit_kind = ExitKind.USER_ERROR


class BadDataError(JobError):
    """Too much of the input cannot be read, or nothing of it can be used."""

    exit_kind = ExitKind.BAD_DATA
