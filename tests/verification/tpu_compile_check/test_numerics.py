"""Our cheaper step computes what plain tf-models' computes: the gradients are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tf_keras
from official.nlp.modeling.models import BertPretrainerV2

from pipeline_config import PipelineConfig
from tests.training.corpora import tiny_config
from tests.training.stepping import random_batch
from training.architectures.models import build_model, named_variables, trained_variables
from training.loop.step import make_replica_step
from verification.tpu_compile_check.steps import make_plain_step, plain_model

Optimizer = tf_keras.optimizers.legacy.Optimizer
Gradients = dict[str, np.ndarray]

BFLOAT16 = {"training__mixed_precision_dtype": "bfloat16"}
SHORT_RESIDUALS = {**BFLOAT16, "training__residual_dtype": "bfloat16"}
# As large as the configuration lets it be: these gradients are not clipped.
UNCLIPPED = {"optimizer__clip_norm": 1000.0}


def config_of(**overrides: Any) -> PipelineConfig:
    # With pairs, as both losses count and every variable has a gradient.
    settings = {"model__num_hidden_layers": 2, "masking__packing": "segment_pair"}
    return tiny_config(**settings, **UNCLIPPED, **overrides)


def gradients(
    model: BertPretrainerV2,
    config: PipelineConfig,
    make_step: Callable[[BertPretrainerV2, Optimizer], Callable[..., Any]],
) -> Gradients:
    """Return the gradients that the optimizer gets in a step of a model with given weights."""
    # Far from the weights' own size, so that little is lost when they are added up.
    rate = 1e4
    for name, variable in named_variables(model).items():
        draw = np.random.default_rng(list(name.encode()))
        # Large enough that attention attends: of an even softmax, keys get no gradient.
        middle, scale = (1.0, 0.1) if name.endswith("gamma") else (0.0, 0.3)
        variable.assign(draw.normal(middle, scale, size=variable.shape))
    before = {name: variable.numpy() for name, variable in named_variables(model).items()}
    make_step(model, tf_keras.optimizers.legacy.SGD(rate))(random_batch())
    trained = {variable.name.removesuffix(":0") for variable in trained_variables(model, config)}
    after = named_variables(model)
    return {name: (before[name] - after[name].numpy()) / rate for name in sorted(trained)}


def ours(**overrides: Any) -> Gradients:
    config = config_of(**overrides)
    return gradients(
        build_model(config), config, lambda model, sgd: make_replica_step(model, sgd, config)
    )


def plain(**overrides: Any) -> Gradients:
    config = config_of(**overrides)
    return gradients(plain_model(config), config, make_plain_step)


@pytest.fixture(scope="module")
def exact() -> Gradients:
    return plain()


def test_gradients_in_float32_are_those_of_tf_models(exact: Gradients) -> None:
    found = ours()
    assert found.keys() == exact.keys()
    for name, expected in exact.items():
        if name.endswith("key/bias"):
            # The softmax does not see a number added to all scores of a row: all is rounding.
            assert np.abs(found[name]).max() < 1e-6
            continue
        largest = np.abs(expected).max()
        assert largest > 1e-4, name
        np.testing.assert_allclose(found[name], expected, atol=1e-5 * largest, rtol=0, err_msg=name)


def error(found: Gradients, exact: Gradients) -> float:
    """Return the norm of the difference, as a share of the norm of the gradient."""
    squares = {name: np.square(found[name] - exact[name]).sum() for name in exact}
    return float(np.sqrt(sum(squares.values()) / sum(np.square(g).sum() for g in exact.values())))


def test_short_residuals_lose_hardly_more_than_bfloat16_does(exact: Gradients) -> None:
    usual = error(plain(**BFLOAT16), exact)
    assert usual > 1e-3, "nothing was computed in bfloat16"
    assert error(ours(**BFLOAT16), exact) < 1.1 * usual
    assert error(ours(**SHORT_RESIDUALS), exact) < 1.3 * usual
