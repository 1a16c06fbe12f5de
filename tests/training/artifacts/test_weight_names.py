"""Every weight has one name and one layout in each format."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.corpora import tiny_config
from trained_models.architectures.architecture import weights
from trained_models.weight_names import Layout
from training.architectures.models import build_model, named_variables


def test_every_variable_is_a_weight() -> None:
    config = tiny_config(masking__packing="segment_pair", model__num_hidden_layers=2)
    variables = named_variables(build_model(config))
    found = weights(config.model, next_sentence=True)
    names = {}
    for weight in found:
        (name,) = [name for name in variables if name.endswith(f"/{weight.variable}")]
        assert tuple(variables[name].shape) == weight.shape
        names[name] = weight.tensor
    assert names.keys() == variables.keys()
    assert len(set(names.values())) == len(found)


@pytest.mark.parametrize("layout", Layout)
def test_what_is_stored_is_loaded(layout: Layout) -> None:
    random = np.random.default_rng(0)
    for weight in weights(tiny_config().model, next_sentence=True):
        value = random.normal(size=weight.shape)
        stored = layout.store(weight, value)
        assert stored.shape == layout.shape(weight)
        np.testing.assert_array_equal(layout.load(weight, stored), value)
