"""Parses labels of files into comparable ones, and lists reasons why examples cannot be used.

Every example read is in a record or counted by its reason.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from corpus.text.drops import DropReason
from pipeline_config import TaskConfig
from pipeline_config.unquoted import kind_of

Label = tuple[str, ...] | float
"""The labels of an example, sorted and distinct (one for a classification), or its number."""

_LONGEST = 200
# Records hold float32.
_LARGEST = 3.4e38


def parse_label(value: Any, task: TaskConfig) -> Label:
    """Return an example's label.

    :param value: from a table, text; from JSON or Parquet, text, a number, a Boolean or, for
        several labels, a list of them.
    :raises LabelError: there is none, or it does not fit the task.
    """
    if value is None:
        raise LabelError(ExampleProblem.MISSING_LABEL, "there is no label")
    if task.kind == "regression":
        return _number(value)
    if task.kind == "classification":
        return (_known(_word(value), task),)
    parts = value if isinstance(value, list) else _separated(value, task)
    return tuple(sorted({_known(_word(part), task) for part in parts}))


def _number(value: Any) -> float:
    if isinstance(value, str) and not value.strip():
        raise LabelError(ExampleProblem.MISSING_LABEL, "the label is empty")
    try:
        if isinstance(value, bool | list | dict):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        detail = f"no number but {kind_of(value)}"
        raise LabelError(ExampleProblem.LABEL_IS_NO_NUMBER, detail) from None
    if not abs(number) <= _LARGEST:
        detail = "no finite 32-bit number"
        raise LabelError(ExampleProblem.LABEL_IS_NO_NUMBER, detail)
    return number


def _separated(value: Any, task: TaskConfig) -> list[Any]:
    if not isinstance(value, str):
        return [value]
    return value.split(task.label_separator) if value.strip() else []


def _word(value: Any) -> str:
    """Return one label as text, spelled as JSON would spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        detail = f"no label but {kind_of(value)}"
        raise LabelError(ExampleProblem.WRONG_LABEL_TYPE, detail)
    label = value.strip()
    if not label:
        raise LabelError(ExampleProblem.MISSING_LABEL, "the label is empty")
    if len(label) > _LONGEST or not label.isprintable():
        detail = f"no label but {kind_of(label)}; one has at most {_LONGEST}, all of them printable"
        raise LabelError(ExampleProblem.WRONG_LABEL_TYPE, detail)
    return label


def _known(label: str, task: TaskConfig) -> str:
    if task.labels and label not in task.labels:
        detail = f"none of the {len(task.labels)} labels"
        raise LabelError(ExampleProblem.UNKNOWN_LABEL, detail)
    return label


def ordered(labels: set[str]) -> list[str]:
    """Return labels in the order of their ids: whole numbers by size, others as text."""
    if all(label.removeprefix("-").isdecimal() for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


class ExampleProblem(StrEnum):
    """Reasons to not use an example, besides those of :class:`corpus.text.drops.DropReason`."""

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

    ``line`` counts from 1; in Parquet it is the row. It is 0 if the whole file is meant.
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
