"""The learning rate at the corners of each schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.training.corpora import tiny_config
from training.optimization.schedules import CosineWarmupDecay, LinearWarmupDecay, build_schedule


def rates(shape: str, decay_steps: int = 0, warmup_steps: int = 4) -> list[float]:
    """Return the rates of steps 0 to 13 of a training of 12."""
    config = tiny_config(
        optimizer__learning_rate=1.0,
        optimizer__end_learning_rate=0.2,
        optimizer__warmup_steps=warmup_steps,
        optimizer__learning_rate_schedule=shape,
        optimizer__decay_steps=decay_steps,
        training__train_steps=12,
    )
    schedule = build_schedule(config)
    return [float(schedule(tf.constant(step, tf.int64))) for step in range(14)]


@pytest.mark.parametrize(
    ("shape", "decay_steps"), [("linear", 0), ("cosine", 0), ("constant_then_linear", 3)]
)
def test_rate_rises_to_the_peak_and_ends_when_all_steps_are_done(
    shape: str, decay_steps: int
) -> None:
    found = rates(shape, decay_steps)
    # The last step of the warm-up and the first one after it both have the peak rate.
    assert found[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert found[11] > found[12]
    assert found[12:] == pytest.approx([0.2, 0.2])


def test_linear_falls_by_the_same_amount_each_step() -> None:
    assert np.diff(rates("linear")[4:13]) == pytest.approx(np.full(8, -0.1), abs=1e-6)


def test_cosine_is_halfway_in_the_middle_and_flat_at_both_ends() -> None:
    falling = rates("cosine")[4:13]
    assert falling[4] == pytest.approx(0.6)
    assert falling[2] == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    steps = -np.diff(falling)
    assert steps[0] == pytest.approx(steps[-1], abs=1e-6)
    assert steps[0] < 0.5 * steps[3]


def test_constant_then_linear_falls_in_its_last_steps_only() -> None:
    found = rates("constant_then_linear", decay_steps=4)
    assert found[4:9] == pytest.approx([1.0] * 5)
    assert found[9:13] == pytest.approx([0.8, 0.6, 0.4, 0.2])


def test_constant_then_linear_may_begin_to_fall_right_after_the_warmup() -> None:
    assert rates("constant_then_linear", decay_steps=8) == pytest.approx(rates("linear"))


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_no_warmup_starts_at_the_peak(shape: str) -> None:
    assert rates(shape, warmup_steps=0)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [LinearWarmupDecay, CosineWarmupDecay])
def test_configuration_makes_an_equal_schedule(kind: type[LinearWarmupDecay]) -> None:
    schedule = kind(peak=1.0, end=0.1, warmup_steps=2, train_steps=9, decay_steps=5)
    same = kind.from_config(schedule.get_config())
    assert [float(same(step)) for step in range(9)] == [float(schedule(step)) for step in range(9)]
