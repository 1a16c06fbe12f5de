from __future__ import annotations

from typing import Any

import pytest

from corpus.labelled.labels import ExampleProblem, LabelError, ordered, parse_label
from pipeline_config import TaskConfig

CLASSES = TaskConfig()
SEVERAL = TaskConfig(kind="multi_label")
NUMBERS = TaskConfig(kind="regression")
GIVEN = TaskConfig(labels=["a", "b"])


@pytest.mark.parametrize(
    ("value", "task", "label"),
    [
        (" pos ", CLASSES, ("pos",)),
        (1, CLASSES, ("1",)),
        (True, CLASSES, ("true",)),
        (1.5, CLASSES, ("1.5",)),
        ("b", GIVEN, ("b",)),
        ("b, a,b", SEVERAL, ("a", "b")),
        (["b", "a"], SEVERAL, ("a", "b")),
        ("", SEVERAL, ()),
        ([], SEVERAL, ()),
        (" -1.5e3 ", NUMBERS, -1500.0),
        (3, NUMBERS, 3.0),
    ],
)
def test_values_of_every_format_become_labels(value: Any, task: TaskConfig, label: Any) -> None:
    assert parse_label(value, task) == label


@pytest.mark.parametrize(
    ("value", "task", "reason", "detail"),
    [
        (None, CLASSES, ExampleProblem.MISSING_LABEL, "there is no label"),
        ("  ", CLASSES, ExampleProblem.MISSING_LABEL, "the label is empty"),
        (None, SEVERAL, ExampleProblem.MISSING_LABEL, "there is no label"),
        ("a,,b", SEVERAL, ExampleProblem.MISSING_LABEL, "the label is empty"),
        ({"a": 1}, CLASSES, ExampleProblem.WRONG_LABEL_TYPE, "no label but dict of 1"),
        (["a"], CLASSES, ExampleProblem.WRONG_LABEL_TYPE, "no label but list of 1"),
        ("a\nb", CLASSES, ExampleProblem.WRONG_LABEL_TYPE, "no label but text of 3 characters"),
        ("c", GIVEN, ExampleProblem.UNKNOWN_LABEL, "none of the 2 labels"),
        ("", NUMBERS, ExampleProblem.MISSING_LABEL, "the label is empty"),
        ("3,5", NUMBERS, ExampleProblem.LABEL_IS_NO_NUMBER, "no number but text of 3 characters"),
        (True, NUMBERS, ExampleProblem.LABEL_IS_NO_NUMBER, "no number but bool"),
        ("nan", NUMBERS, ExampleProblem.LABEL_IS_NO_NUMBER, "no finite 32-bit number"),
        ("1e39", NUMBERS, ExampleProblem.LABEL_IS_NO_NUMBER, "no finite 32-bit number"),
    ],
)
def test_what_is_no_label_has_a_reason(
    value: Any, task: TaskConfig, reason: ExampleProblem, detail: str
) -> None:
    with pytest.raises(LabelError) as caught:
        parse_label(value, task)
    assert caught.value.reason is reason
    assert detail in caught.value.detail


def test_text_in_the_place_of_a_label_is_not_quoted() -> None:
    with pytest.raises(LabelError) as caught:
        parse_label("secret " * 100, CLASSES)
    assert "secret" not in caught.value.detail


def test_whole_numbers_are_ordered_by_size_and_other_labels_as_text() -> None:
    assert ordered({"10", "9", "-1", "09"}) == ["-1", "09", "9", "10"]
    assert ordered({"10", "9", "b", "a"}) == ["10", "9", "a", "b"]
