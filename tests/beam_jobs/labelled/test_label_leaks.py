"""How well labels can be told by looking for their names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from beam_jobs.labelled.label_leaks import LabelSearch, told_by_label
from corpus.labelled.labels import Label
from pipeline_config import TaskConfig

CLASSES = TaskConfig()


def told(
    examples: Sequence[tuple[str, Label]], labels: Sequence[str] = (), task: TaskConfig = CLASSES
) -> float | None:
    search = LabelSearch(task, labels)
    for text, label in examples:
        search.add([text], label)
    return told_by_label(search.counts, task)


def test_label_in_front_of_every_text_tells_all() -> None:
    examples = [(f"[{label.upper()}] some text {n}", (label,)) for n in range(10) for label in "ab"]
    assert told(examples, ["a", "b"]) == 1.0
    marked = [(f"__label__{label} some text", (label,)) for _ in range(10) for label in "ab"]
    assert told(marked, ["a", "b"]) == 1.0


def test_one_label_of_two_tells_both() -> None:
    examples = [("spam! buy", ("spam",)), ("hello", ("ham",))] * 10
    assert told(examples, ["ham", "spam"]) == 1.0


def test_labels_that_are_not_in_the_text_tell_no_more_than_one_label_for_all() -> None:
    examples = [("some words", (label,)) for label in "abcd"] * 5
    assert told(examples, list("abcd")) == 0.25


def test_rare_labels_count_as_much_as_frequent_ones() -> None:
    # Saying "ham" always is right in 95 % of the examples, but for half of the labels.
    assert told([("some words", ("ham",))] * 95 + [("x", ("spam",))] * 5, ["ham", "spam"]) == 0.5


def test_labels_are_whole_words_and_the_longest_counts() -> None:
    labels = ["good", "not good", "goods"]
    examples: list[tuple[str, Label]] = [
        ("that is good", ("good",)),
        ("that is NOT GOOD", ("not good",)),
        ("goods", ("goods",)),
    ] * 10
    assert told(examples, labels) == 1.0


def test_several_labels_in_a_text_tell_nothing() -> None:
    examples = [("red or blue", (label,)) for label in ("red", "blue")] * 10
    assert told(examples, ["red", "blue"]) == 0.5


def test_nothing_is_told_of_few_examples() -> None:
    assert told([("a", ("a",)), ("b", ("b",))] * 9, ["a", "b"]) is None


def test_several_labels_are_told_by_f1() -> None:
    task = TaskConfig(kind="multi_label")
    all_of_them: list[tuple[str, Label]] = [("a and b", ("a", "b")), ("nothing", ())] * 10
    assert told(all_of_them, ["a", "b"], task) == 1.0
    half: list[tuple[str, Label]] = [("a and c", ("a", "b"))] * 20
    assert told(half, ["a", "b", "c"], task) == 0.5
    none: list[tuple[str, Label]] = [("x", ())] * 20
    assert told(none, ["a"], task) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [("4.5 stars of 5", 1.0), ("of 5 it gets 4.5", 1.0), ("5 of 4.5 and 3", 0.0), ("good", 0.0)],
)
def test_number_is_told_by_the_first_or_the_last_one(text: str, found: float) -> None:
    assert told([(text, 4.5)] * 20, task=TaskConfig(kind="regression")) == found
