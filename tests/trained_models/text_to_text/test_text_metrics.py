"""Metrics of texts are those of their definitions, with intervals around them."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sklearn.metrics import f1_score

from trained_models.text_to_text.metrics import Measured, rouge_l, scores

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "ran", "off", "again")


def texts(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, 12))) for _ in range(count)]


def noisy(targets: list[str]) -> list[str]:
    """Return targets of which each third has lost its first word."""
    return [t.partition(" ")[2] if i % 3 == 0 else t for i, t in enumerate(targets)]


def test_bleu_is_sacrebleus() -> None:
    targets = texts(40, 1)
    found = scores("text", noisy(targets), targets)["bleu"]
    assert found.value == pytest.approx(BLEU().corpus_score(noisy(targets), [targets]).score)
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("output", "target", "value"),
    [
        ("police kill the gunman", "police killed the gunman", 0.75),
        ("the gunman kill police", "police killed the gunman", 0.5),
        ("The cat, sat.", "the cat sat", 1.0),
        ("", "the cat", 0.0),
        ("...", "!", 1.0),
    ],
)
def test_rouge_l_is_the_f1_of_the_longest_common_subsequence(
    output: str, target: str, value: float
) -> None:
    assert rouge_l(output, target) == pytest.approx(value)


def test_white_space_does_not_matter_to_exact_match() -> None:
    found = scores("text", [" a  b\n", "a c", "x", "y"], ["a b", "a b", "x", "z"])
    assert found["exact_match"].value == 0.5


def test_other_texts_than_labels_are_wrong_and_counted() -> None:
    targets = ["yes", "no", "no", "maybe"] * 10
    outputs = ["yes", "no", "perhaps", "no"] * 10
    found = scores("label", outputs, targets, ["maybe", "no", "yes"])
    assert found["accuracy"].value == 0.5
    assert found["invalid_share"].value == 0.25
    wanted = f1_score(targets, outputs, average="macro", labels=["maybe", "no", "yes"])
    assert found["macro_f1"].value == pytest.approx(wanted)
    assert found["accuracy"].low < 0.5 < found["accuracy"].high


def test_what_is_always_right_has_no_interval() -> None:
    assert scores("label", ["a", "b"], ["a", "b"], ["a", "b"])["macro_f1"] == Measured(1, 1, 1)


def test_each_example_needs_an_output() -> None:
    with pytest.raises(ValueError, match="1 outputs of 2 examples"):
        scores("text", ["a"], ["a", "b"])
