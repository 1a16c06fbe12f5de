"""Did it pay: the verdict, its sentence, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline_store import uris
from pipeline_store.formats import FormatError, PaidVerdict, TaskSplit
from tests.trained_models.downstream.written import guesses, task_manifest, write_trial
from trained_models.downstream.comparison import compare
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import BadDataError

MANIFEST = task_manifest()
TEST = np.arange(400) % 3


def side(
    folder: Path, model: str, right: float, *, seeds: int = 3, examples: int = 400, shift: int = 0
) -> list[FinishedTrial]:
    """Return trials whose predictions are right for a share of the examples."""
    return [
        write_trial(
            str(folder),
            MANIFEST,
            {TaskSplit.TEST: guesses(TEST[:examples], right, 10 * seed + len(model))},
            model=model,
            seed=seed + shift,
        )
        for seed in range(1, seeds + 1)
    ]


@pytest.mark.parametrize(
    ("right", "verdict"),
    [
        (0.9, PaidVerdict.HELPED),
        (0.5, PaidVerdict.HURT),
        (0.7, PaidVerdict.NO_EVIDENCE),
    ],
)
def test_the_verdict_follows_from_the_interval(
    tmp_path: Path, right: float, verdict: PaidVerdict
) -> None:
    found = compare(MANIFEST, side(tmp_path, "model", right), side(tmp_path, "previous", 0.7))
    assert found.verdict is verdict
    assert found.difference == pytest.approx(found.model_mean - found.reference_mean)
    assert found.low < found.difference < found.high
    for number in (found.model_mean, found.reference_mean):
        assert f"{number:.4f}" in found.sentence
    for number in (found.difference, found.low, found.high):
        assert f"{number:+.4f}" in found.sentence
    assert "that of previous" in found.sentence
    assert "mean of 3 seeds, 400 test examples" in found.sentence
    assert "95% interval" in found.sentence
    said = {
        PaidVerdict.HELPED: "It helped.",
        PaidVerdict.HURT: "It hurt.",
        PaidVerdict.NO_EVIDENCE: "No evidence that it made a difference; one of less than",
    }
    assert said[verdict] in found.sentence


def test_one_seed_is_compared_with_a_caveat(tmp_path: Path) -> None:
    found = compare(
        MANIFEST, side(tmp_path, "model", 0.9, seeds=1), side(tmp_path, "previous", 0.6, seeds=1)
    )
    assert found.verdict is PaidVerdict.HELPED
    assert "mean of 1 seed," in found.sentence
    assert found.sentence.endswith("What another seed would change is not known from one.")


def test_a_handful_of_examples_is_no_evidence(tmp_path: Path) -> None:
    found = compare(
        MANIFEST,
        side(tmp_path, "model", 1.0, examples=19),
        side(tmp_path, "previous", 0.0, examples=19),
    )
    assert found.low > 0
    assert found.verdict is PaidVerdict.NO_EVIDENCE
    assert "fewer than 20 test examples" in found.sentence


def without_test(folder: Path) -> list[FinishedTrial]:
    splits = {TaskSplit.VALIDATION: guesses(TEST, 0.8, 1)}
    return [
        write_trial(str(folder), MANIFEST, splits, model="other", seed=seed) for seed in (1, 2, 3)
    ]


def other_examples(folder: Path) -> list[FinishedTrial]:
    return [
        write_trial(
            str(folder),
            MANIFEST,
            {TaskSplit.TEST: guesses((TEST + 1) % 3, 0.8, seed)},
            model="other",
            seed=seed,
        )
        for seed in (1, 2, 3)
    ]


UNPAIRED: dict[str, tuple[Callable[[Path], list[FinishedTrial]], str]] = {
    "other seeds": (lambda folder: side(folder, "other", 0.8, shift=5), "from different seeds"),
    "fewer seeds": (lambda folder: side(folder, "other", 0.8, seeds=2), "from different seeds"),
    "not tested": (without_test, r"things\.other\.0\.001\.1 has no test scores"),
    "other examples": (other_examples, "was tested on other examples than"),
}


@pytest.mark.parametrize("case", UNPAIRED)
def test_what_is_not_paired_is_not_compared(tmp_path: Path, case: str) -> None:
    make, message = UNPAIRED[case]
    with pytest.raises(BadDataError, match=message):
        compare(MANIFEST, side(tmp_path, "model", 0.8), make(tmp_path))


def test_damaged_predictions_are_noticed(tmp_path: Path) -> None:
    model, reference = side(tmp_path, "model", 0.8), side(tmp_path, "previous", 0.8)
    place = uris.join(reference[1].place.root, "outputs/abc/predictions-test.npz")
    uris.write(place, uris.read(place)[:-1] + b"x")
    with pytest.raises(FormatError, match="is damaged: its SHA-256 is"):
        compare(MANIFEST, model, reference)
    uris.delete(place)
    with pytest.raises(FormatError, match="is missing"):
        compare(MANIFEST, model, reference)
