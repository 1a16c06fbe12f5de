"""Why an example cannot be used. Every example read is in a record or counted by its reason."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from corpus.text.drops import DropReason


class ExampleProblem(StrEnum):
    """Reasons besides those of :class:`corpus.text.drops.DropReason`."""

    EMPTY_TEXT = "empty_text"
    EMPTY_TARGET = "empty_target"
    MISSING_LABEL = "missing_label"
    WRONG_LABEL_TYPE = "wrong_label_type"
    LABEL_IS_NO_NUMBER = "label_is_no_number"
    UNKNOWN_LABEL = "unknown_label"
    UNSEEN_LABEL = "unseen_label"
    LEAKED = "leaked"


# Left out, but does not count against max_bad_fraction.
HARMLESS = frozenset({ExampleProblem.EMPTY_TEXT})

Reason = ExampleProblem | DropReason


class Unusable(NamedTuple):
    """An example that cannot be used: why, and where it begins.

    ``line`` counts from 1; in Parquet it is the row. It is 0 where the whole file is meant.
    """

    reason: Reason
    detail: str
    line: int


class LabelError(Exception):
    """A label cannot be used."""

    def __init__(self, reason: ExampleProblem, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
