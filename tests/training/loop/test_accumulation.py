"""A batch in parts: the same update, less memory at a time, other dropout masks for each part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from tests.training.conftest import replicas
from tests.training.corpora import tiny_config
from tests.training.stepping import ROWS, Training, random_batch
from trained_models.errors import UserError
from training.architectures.models import build_model, trained_variables
from training.loop.step import make_train_loop
from training.optimization.optimizers import build_optimizer

PAIRS = {"masking__packing": "segment_pair"}
DROPOUT = {"model__hidden_dropout_prob": 0.1, "model__attention_probs_dropout_prob": 0.1}


def in_parts(parts: int, **overrides: Any) -> PipelineConfig:
    return tiny_config(
        training__gradient_accumulation_steps=parts,
        # Adam divides by the root of a moment: rounding of a gradient near 0 must not decide.
        optimizer__epsilon=1e-3,
        **overrides,
    )


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        (4, PAIRS),
        pytest.param(2, {}, marks=pytest.mark.thorough),
        pytest.param(4, {}, marks=pytest.mark.thorough),
    ],
)
def test_parts_do_not_change_the_update(parts: int, rows: dict[str, str]) -> None:
    whole, split = Training(in_parts(1, **rows)), Training(in_parts(parts, **rows))
    start = whole.weights
    batch = random_batch()
    metrics, split_metrics = whole.run(batch, steps=3), split.run(batch, steps=3)

    # Sums of float32 in another order.
    assert split_metrics == pytest.approx(metrics, rel=2e-6)
    assert metrics.pairs == (ROWS if rows else 0)
    for name, value in whole.weights.items():
        np.testing.assert_allclose(split.weights[name], value, atol=1e-6, err_msg=name)
    moved = {name: np.abs(value - start[name]).max() for name, value in whole.weights.items()}
    assert max(moved.values()) > 1e-3, "nothing was trained"


@pytest.mark.thorough
def test_parts_on_replicas_do_not_change_the_update() -> None:
    batch = random_batch()

    def train(count: int, parts: int) -> tuple[list[np.ndarray], float]:
        strategy, config = replicas(count), in_parts(parts)
        with strategy.scope():
            model = build_model(config)
            variables = trained_variables(model, config)
            optimizer = build_optimizer(config, variables)
        shares = tf.data.Dataset.from_tensors((batch,)).unbatch().batch(ROWS // count).repeat()
        shares = shares.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        static = shares.map(lambda share: ({n: _static(v, count) for n, v in share.items()},))
        loop = make_train_loop(strategy, model, optimizer, config)
        distributed = strategy.distribute_datasets_from_function(lambda _: static)
        metrics = loop(iter(distributed), tf.constant(3))
        return [variable.numpy() for variable in variables], float(metrics.loss_sum)

    def _static(value: tf.Tensor, count: int) -> tf.Tensor:
        return tf.ensure_shape(value, [ROWS // count, *value.shape[1:]])

    weights, loss = train(1, 1)
    split_weights, split_loss = train(2, 2)
    assert split_loss == pytest.approx(loss, rel=2e-6)
    for value, split_value in zip(weights, split_weights, strict=True):
        np.testing.assert_allclose(split_value, value, atol=1e-6)


def test_each_part_has_dropout_masks_of_its_own() -> None:
    half = random_batch(ROWS // 2)
    twice = {name: tf.concat([value, value], axis=0) for name, value in half.items()}
    without = Training(in_parts(2)).run(twice).loss_sum / Training(in_parts(1)).run(half).loss_sum
    assert without == pytest.approx(2.0, rel=1e-5)
    # Of two parts the first has the masks of a whole batch at step 0. The second has others.
    first = Training(in_parts(1, **DROPOUT)).run(half).loss_sum
    both = Training(in_parts(2, **DROPOUT)).run(twice).loss_sum
    assert both != pytest.approx(2.0 * first, rel=1e-4)
    assert both == pytest.approx(2.0 * first, rel=0.1)


@pytest.mark.thorough
def test_a_batch_in_parts_is_one_static_program() -> None:
    config = in_parts(4, **PAIRS, **DROPOUT, training__mixed_precision_dtype="bfloat16")
    metrics = Training(config, jit_compile=True).run(random_batch())
    assert metrics.loss_sum / metrics.masked_tokens == pytest.approx(5.77, abs=0.2)


def test_batch_that_has_no_such_parts_is_refused_with_both_numbers() -> None:
    config = in_parts(8)
    strategy = replicas(2)
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model, config))
    problem = r"global_batch_size: 8 rows .* over 2 replicas with .*steps=8 parts each"
    with pytest.raises(UserError, match=problem):
        make_train_loop(strategy, model, optimizer, config)
