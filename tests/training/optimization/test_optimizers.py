"""The update rules that the configuration chooses."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.training.corpora import tiny_config
from training.optimization.optimizers import build_optimizer
from training.optimization.schedules import LinearWarmupDecay


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


SHAPES = {
    "bert/word_embeddings/embeddings": (7, 4),
    "bert/layer_0/self_attention/query/kernel": (4, 2, 2),
    "bert/layer_0/self_attention/attention_output/kernel": (2, 2, 4),
    "bert/layer_0/output/kernel": (6, 4),
    "bert/layer_0/intermediate/kernel": (4, 6),
    "bert/layer_0/output/bias": (4,),
    "bert/layer_0/output_layer_norm/gamma": (4,),
}
# Of each variable above: the axes its statistics are averaged over, and the expected scale.
AMOS_RULES: dict[str, tuple[tuple[int, ...], float]] = {
    "bert/word_embeddings/embeddings": ((1,), (2 / 4) ** 0.5),
    "bert/layer_0/self_attention/query/kernel": ((0,), (1 / 4) ** 0.5),
    "bert/layer_0/self_attention/attention_output/kernel": ((0, 1), (1 / 4) ** 0.5),
    "bert/layer_0/output/kernel": ((0,), (2 / 6) ** 0.5),
    "bert/layer_0/intermediate/kernel": ((0,), (1 / 4) ** 0.5),
    "bert/layer_0/output/bias": ((0,), 0.5),
    "bert/layer_0/output_layer_norm/gamma": ((0,), 1.0),
}


def amos_reference(
    start: np.ndarray, gradients: list[np.ndarray], rates: list[float], name: str
) -> np.ndarray:
    """The paper's update rule, written down once more in double precision."""
    axes, eta = AMOS_RULES[name]
    beta, mu, c, d = 0.99, 0.9, 0.25, 0.25
    theta = start.astype(np.float64)
    v = np.zeros_like(theta.mean(axis=axes, keepdims=True))
    b, m = np.zeros_like(v), np.zeros_like(theta)
    for t, (gradient, xi) in enumerate(zip(gradients, rates, strict=True), 1):
        g = np.clip(gradient, -1, 1)
        square = (g**2).mean(axis=axes, keepdims=True)
        v = beta * v + (1 - beta) * square
        v_hat = v / (1 - beta**t)
        gamma = (1 + c * xi**0.5 * b) ** -0.5 * square / v_hat * xi**2
        decay = (1 + d * (xi * eta) ** 0.5 * b) ** -1
        delta = decay * (xi * eta / v_hat**0.5 * g + gamma / 2 * theta)
        b = b + gamma * (1 + b)
        m = mu * m + (1 - mu) * delta
        theta = theta - m
    return theta


@pytest.mark.parametrize("name", SHAPES)
def test_amos_follows_the_papers_rule(name: str) -> None:
    config = tiny_config(
        optimizer__type="amos",
        optimizer__learning_rate=0.1,
        optimizer__beta_2=0.99,
        optimizer__warmup_steps=10,
        training__train_steps=60,
    )
    draw = np.random.default_rng(5)
    start = draw.normal(size=SHAPES[name]).astype(np.float32)
    gradients = [draw.normal(size=start.shape).astype(np.float32) for _ in range(60)]
    variable = tf.Variable(start, name=name)
    optimizer = build_optimizer(config, [variable])
    schedule = LinearWarmupDecay(peak=0.1, end=0.0, warmup_steps=10, train_steps=60)
    rates = [float(schedule(step)) for step in range(60)]

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        optimizer.apply_gradients([(gradient, variable)], experimental_aggregate_gradients=False)

    for gradient in gradients:
        step(tf.constant(gradient))
    expected = amos_reference(start, gradients, rates, name)
    assert np.abs(expected - start).max() > 0.1
    assert variable.numpy() == pytest.approx(expected, abs=2e-6)


def test_amos_keeps_less_state_than_adam() -> None:
    kernel = tf.Variable(tf.zeros([64, 64]), name="layer/kernel")
    sizes = {
        kind: sum(
            int(tf.size(weight))
            for weight in build_optimizer(tiny_config(optimizer__type=kind), [kernel]).weights
        )
        for kind in ("adamw", "amos")
    }
    assert sizes["amos"] < 0.55 * sizes["adamw"]


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
