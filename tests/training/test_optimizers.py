"""The learning-rate schedule and the update rules that the configuration chooses."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.training.corpora import tiny_config
from training.optimizers import LinearWarmupDecay, build_optimizer


def test_rate_rises_to_the_peak_and_falls_to_the_end() -> None:
    schedule = LinearWarmupDecay(peak=1.0, end=0.2, warmup_steps=4, train_steps=12)
    rates = [float(schedule(tf.constant(step, tf.int64))) for step in range(13)]
    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert np.diff(rates[4:]) == pytest.approx(np.full(8, -0.1), abs=1e-6)
    assert rates[12] == pytest.approx(0.2)


def test_no_warmup_starts_at_the_peak() -> None:
    schedule = LinearWarmupDecay(peak=1.0, end=0.0, warmup_steps=0, train_steps=10)
    assert [float(schedule(step)) for step in (0, 5)] == pytest.approx([1.0, 0.5])


def test_adamw_decays_kernels_and_not_biases() -> None:
    config = tiny_config(
        optimizer__warmup_steps=0, optimizer__learning_rate=0.1, optimizer__weight_decay_rate=0.5
    )
    kernel = tf.Variable([2.0], name="layer/kernel")
    exempt = [tf.Variable([2.0], name=name) for name in ("layer/bias", "x/layer_norm/gamma")]
    variables = [kernel, *exempt]
    optimizer = build_optimizer(config, variables)
    gradient = tf.constant([3.0])
    optimizer.apply_gradients(
        [(gradient, v) for v in variables], experimental_aggregate_gradients=False
    )
    # The first step of Adam has the size of the rate, whatever the gradient's.
    assert [float(v[0]) for v in exempt] == pytest.approx([1.9, 1.9], abs=1e-5)
    assert float(kernel[0]) == pytest.approx(2.0 - 0.1 * 0.5 * 2.0 - 0.1, abs=1e-5)


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_slots_exist_before_the_first_step(kind: str) -> None:
    variable = tf.Variable([[1.0, 2.0]], name="kernel")
    optimizer = build_optimizer(tiny_config(optimizer__type=kind), [variable])
    names = [weight.name for weight in optimizer.weights]
    assert len(names) == 3  # iterations, first and second moment
    assert int(optimizer.iterations) == 0
    before = variable.numpy()
    optimizer.apply_gradients(
        [(tf.ones_like(variable), variable)], experimental_aggregate_gradients=False
    )
    assert (variable.numpy() < before).all()
    assert int(optimizer.iterations) == 1
