from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from training.optimization.schedules import LinearWarmupDecay
from verification.benchmarks.finetune import work
from verification.benchmarks.finetune.rows import metrics_row, speed_row
from verification.benchmarks.train.contest import Measured, SideName

OURS = SideName("ours", package="verification.benchmarks.finetune.sides")
EAGER = SideName("hugging_face", package="verification.benchmarks.finetune.sides")
COMPILED = SideName("hugging_face", package="verification.benchmarks.finetune.sides", compiled=True)


def measured(*wall: float, cpu: float = 2.0, parameters: int = 7) -> Measured:
    about = {"parameters": parameters, "versions": {"some": "1.0"}}
    return Measured(about, 9.0, list(wall), [cpu] * len(wall))


def test_the_ratio_is_that_to_the_faster_peer_round_by_round() -> None:
    found = {
        OURS: measured(1.0, 2.0, 4.0, cpu=1.0),
        EAGER: measured(9.0, 9.0, 9.0),
        COMPILED: measured(3.0, 2.0, 2.0, cpu=1.5),
    }
    row = speed_row(found, OURS)
    assert row.peer == str(COMPILED)
    # 3, 1 and half as fast.
    assert (row.ratio, row.spread, row.best_ratio) == (1.0, 6.0, 2.0)
    assert row.cpu_ratio == 1.5
    assert (row.value, row.details["peer_value"]) == (16.0, 16.0)


def test_sides_of_different_sizes_are_no_contest() -> None:
    found = {OURS: measured(1.0, parameters=7), EAGER: measured(1.0, parameters=8)}
    with pytest.raises(ValueError, match="different numbers of weights"):
        speed_row(found, OURS)


def test_a_side_is_a_module_of_its_package() -> None:
    words = " ".join(OURS.command(Path("/nowhere"), threads=2))
    assert "-m verification.benchmarks.finetune.sides.ours" in words


def test_accuracies_are_told_apart_by_welchs_test() -> None:
    same = metrics_row([0.5, 0.52, 0.48], [0.51, 0.49, 0.5]).details
    assert same["within_seed_noise"]
    assert same["difference"] == pytest.approx(0.0)
    ours, theirs = [0.5, 0.51, 0.49], [0.6, 0.61, 0.59]
    apart = metrics_row(ours, theirs).details
    assert not apart["within_seed_noise"]
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    assert (apart["t"], apart["p"]) == (expected.statistic, expected.pvalue)


def test_both_sides_have_the_same_rates() -> None:
    steps, fraction = 50, 0.1
    ours = LinearWarmupDecay(1.0, 0.0, warmup_steps=round(fraction * steps), train_steps=steps)
    for step in range(steps):
        assert work.rate_factor(steps, fraction, step) == pytest.approx(float(ours(step)))
