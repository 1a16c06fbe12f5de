"""The interval of a difference: how often it errs on equal models, and what it can see."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_config.task import MetricName, TaskKind
from pipeline_store.formats import PaidVerdict
from tests.trained_models.downstream.simulated import World, verdict
from trained_models.downstream import intervals
from trained_models.downstream.intervals import difference

COMPARISONS = 200
# Of 200 comparisons of equal models an interval of 95 % lies beside zero in 10; 16 and more of them
# would be a rate of 5 % in one of thirty such tests only.
MOST_WRONG = 16


def wrong_verdicts(
    world: World, metric: MetricName = "accuracy", kind: TaskKind = "classification"
) -> int:
    found = [verdict(world.compared(seed, metric, kind)) for seed in range(COMPARISONS)]
    return COMPARISONS - found.count(PaidVerdict.NO_EVIDENCE)


def true_difference(better: float) -> float:
    """Return the difference of the accuracies on very many examples."""
    labels, sides = World(examples=500_000, seeds=1, better=better, level=0.0).outputs(1)
    model, reference = ((side[0].argmax(axis=1) == labels).mean() for side in sides)
    return float(model - reference)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is measured here is a rate over many comparisons; each needs less precision.
    monkeypatch.setattr(intervals, "RESAMPLES", 200)


@pytest.mark.parametrize("seeds", [1, 3])
def test_equal_models_are_seldom_told_apart(seeds: int) -> None:
    assert wrong_verdicts(World(examples=200, seeds=seeds, level=0.0)) <= MOST_WRONG


@pytest.mark.parametrize("seeds", [2, 3])
def test_seeds_that_differ_much_are_not_taken_for_models(seeds: int) -> None:
    assert wrong_verdicts(World(examples=200, seeds=seeds, level=0.5)) <= MOST_WRONG


@pytest.mark.parametrize("examples", [30, 200])
def test_equal_models_whose_seeds_nearly_agree_are_seldom_told_apart(examples: int) -> None:
    world = World(examples=examples, seeds=5, level=0.0, opinion=0.05)
    assert wrong_verdicts(world) <= MOST_WRONG


def test_one_seed_is_taken_for_the_model() -> None:
    # Hence the sentence's caveat.
    assert wrong_verdicts(World(examples=200, seeds=1, level=0.5)) > 2 * MOST_WRONG


@pytest.mark.parametrize("metric", ["macro_f1", "matthews"])
def test_other_metrics_of_equal_models_are_seldom_told_apart(metric: MetricName) -> None:
    assert wrong_verdicts(World(examples=100, seeds=3, level=0.2), metric) <= MOST_WRONG


def test_correlations_of_equal_models_are_seldom_told_apart() -> None:
    world = World(examples=50, seeds=3, level=0.1)
    assert wrong_verdicts(world, "spearman", "regression") <= MOST_WRONG


@pytest.mark.parametrize("seeds", [1, 5])
def test_few_examples_on_which_models_disagree_are_no_evidence(seeds: int) -> None:
    # Four of 500 decided differently, all by chance for the same model: one in eight such cases.
    # Seeds that agree, as those of a frozen encoder nearly do, make no more of it.
    labels = np.zeros(500, int)
    right = np.tile([1.0, 0.0], (500, 1))
    other = right.copy()
    other[:4] = [0.0, 1.0]
    found = difference("classification", "accuracy", labels, [right] * seeds, [other] * seeds)
    assert found.mean == pytest.approx(4 / 500)
    assert found.low < 0 < found.high


@pytest.mark.parametrize(("seeds", "at_least"), [(3, 0.5), (5, 0.8)])
def test_a_real_difference_is_found(seeds: int, at_least: float) -> None:
    world = World(examples=500, seeds=seeds, better=0.7)
    found = [verdict(world.compared(seed)) for seed in range(50)]
    assert found.count(PaidVerdict.HELPED) >= at_least * len(found)
    assert PaidVerdict.HURT not in found


def test_a_real_difference_is_within_the_interval() -> None:
    world = World(examples=300, seeds=3, better=0.5)
    truth = true_difference(0.5)
    intervals_found = [world.compared(seed) for seed in range(100)]
    assert sum(one.low <= truth <= one.high for one in intervals_found) >= 92


@pytest.mark.parametrize("seeds", [1, 3, 10])
def test_models_that_predict_the_same_do_not_differ(seeds: int) -> None:
    labels, (model, _) = World(examples=100, seeds=1).outputs(1)
    found = difference("classification", "macro_f1", labels, model * seeds, model * seeds)
    assert found.mean == 0
    # Two examples of 100, whatever the number of seeds that agree about the others.
    assert found.high == -found.low == pytest.approx(1.984 * 2**0.5 / 100, rel=1e-3)


def test_swapping_the_models_turns_the_interval_round() -> None:
    labels, (model, reference) = World(examples=100, seeds=3, better=0.5).outputs(1)
    one = difference("classification", "accuracy", labels, model, reference)
    other = difference("classification", "accuracy", labels, reference, model)
    assert (one.low, one.mean, one.high) == pytest.approx((-other.high, -other.mean, -other.low))
    assert one == difference("classification", "accuracy", labels, model, reference)


def test_more_confidence_is_a_wider_interval() -> None:
    labels, (model, reference) = World(examples=100, seeds=3).outputs(1)
    widths = [
        found.high - found.low
        for confidence in (0.5, 0.8, 0.95, 0.99)
        for found in [
            difference(
                "classification", "accuracy", labels, model, reference, confidence=confidence
            )
        ]
    ]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1] / 3


def test_what_cannot_be_paired_is_an_error() -> None:
    labels, (model, reference) = World(examples=100, seeds=3).outputs(1)
    with pytest.raises(ValueError, match="3 seeds of a model and 2 of its reference"):
        difference("classification", "accuracy", labels, model, reference[:2])
    with pytest.raises(ValueError, match="on 1 examples"):
        difference("classification", "accuracy", labels[:1], model, reference)


def percentile_of_both(world: World, seed: int) -> PaidVerdict:
    """Return the verdict of the plain hierarchical bootstrap: examples and seeds are resampled."""
    labels, sides = world.outputs(seed)
    model, reference = (
        np.array([one.argmax(axis=1) == labels for one in side], float) for side in sides
    )
    differences = model - reference
    random = np.random.default_rng(seed)
    means = []
    for _ in range(400):
        seeds = random.integers(0, world.seeds, world.seeds)
        rows = random.integers(0, world.examples, world.examples)
        means.append(differences[seeds][:, rows].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    if low > 0:
        return PaidVerdict.HELPED
    return PaidVerdict.HURT if high < 0 else PaidVerdict.NO_EVIDENCE


@pytest.mark.slow
def test_resampling_seeds_would_find_differences_that_are_not_there() -> None:
    world = World(examples=1000, seeds=3, level=0.4)
    found = [percentile_of_both(world, seed) for seed in range(COMPARISONS)]
    print(f"plain: {COMPARISONS - found.count(PaidVerdict.NO_EVIDENCE)} of {COMPARISONS}")
    assert COMPARISONS - found.count(PaidVerdict.NO_EVIDENCE) > 2 * MOST_WRONG
    assert wrong_verdicts(world) <= MOST_WRONG


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_can_be_seen() -> None:
    """Print the table of docs/guides/did-it-pay.md: how often a true difference is found."""
    truths = {better: true_difference(better) for better in (0.0, 0.16, 0.4, 0.85)}
    print()
    shares: dict[tuple[int, int, float], float] = {}
    for examples in (200, 1000):
        for seeds in (1, 3, 5, 10):
            for better in truths:
                world = World(examples=examples, seeds=seeds, better=better)
                found = [verdict(world.compared(seed)) for seed in range(COMPARISONS)]
                wanted = PaidVerdict.HELPED if better else PaidVerdict.NO_EVIDENCE
                shares[examples, seeds, better] = found.count(wanted) / COMPARISONS
            row = "  ".join(
                f"{truth:+.3f}: {shares[examples, seeds, better]:.0%}"
                for better, truth in truths.items()
            )
            print(f"{examples} examples, {seeds} seeds: {row}", flush=True)
    assert shares[1000, 5, 0.4] > shares[1000, 3, 0.4] > 0.3
