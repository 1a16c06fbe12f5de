"""Each architecture answers whatever is asked of it, and its two records speak of one model."""

from __future__ import annotations

import math

import pytest

from pipeline_config import PipelineConfig, with_overrides
from pipeline_config.training_schema import ModelConfig
from preflight.estimates.sizes import weight_count
from tests.training.corpora import ROBERTA, T5, tiny_config
from trained_models.architectures import architecture
from trained_models.errors import UserError
from training.architectures.models import (
    architecture_of,
    build_model,
    named_variables,
    trained_variables,
)


def config_of(name: str) -> PipelineConfig:
    model = ModelConfig.model_validate({"architecture": name})
    own = T5 if model.has_decoder else ROBERTA if model.has_byte_tokens else {}
    return tiny_config(**own | {"model__architecture": name})


EACH = pytest.mark.parametrize("name", architecture.names())


@EACH
def test_every_variable_is_a_weight(name: str) -> None:
    config = config_of(name)
    variables = named_variables(build_model(config))
    found = architecture.weights(config.model, next_sentence=False)
    names = {}
    for weight in found:
        (variable,) = [name for name in variables if name.endswith(f"/{weight.variable}")]
        assert tuple(variables[variable].shape) == weight.shape
        names[variable] = weight.tensor
    assert names.keys() == variables.keys()
    assert len(set(names.values())) == len(found)


@EACH
def test_the_estimate_counts_all_weights(name: str) -> None:
    config = config_of(name)
    variables = named_variables(build_model(config)).values()
    assert weight_count(config) == sum(math.prod(variable.shape) for variable in variables)


@EACH
def test_every_trained_variable_has_a_scale(name: str) -> None:
    config = config_of(name)
    model, found = build_model(config), architecture_of(config.model)
    for variable in trained_variables(model, config):
        if config.model.has_decoder:
            with pytest.raises(UserError, match="amos needs to know"):
                found.scale(variable)
            continue
        assert 0 < found.scale(variable) <= 1
        assert set(found.averaged_axes(variable)) <= set(range(len(variable.shape)))


def test_a_setting_from_before_the_choice_keeps_its_hashes() -> None:
    plain = PipelineConfig()
    # Of the version before there was a choice.
    assert plain.training_sha256.startswith("4bf3221fd7d5e580")
    assert with_overrides(plain, {"model.architecture": "bert"}) == plain
