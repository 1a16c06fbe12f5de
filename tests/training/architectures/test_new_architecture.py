"""The skeleton of the page on new architectures, asked what every record is asked."""

from __future__ import annotations

import math
import re
import sys
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

from local.stack.paths import REPOSITORY
from pipeline_config import PipelineConfig
from preflight.estimates.sizes import weight_count
from tests.training.corpora import tiny_config
from trained_models.architectures import architecture
from training.architectures.models import (
    architecture_of,
    build_model,
    named_variables,
    trained_variables,
)

PAGE = REPOSITORY / "docs" / "extend" / "new-architecture.md"
BLOCK = re.compile(r"^```python (files|trainer)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACES = {
    "files": "trained_models.architectures.scaled",
    "trainer": "training.architectures.scaled",
}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> PipelineConfig:
    """Return one of the architecture, whose records are where it has them."""
    blocks = dict(BLOCK.findall(PAGE.read_text()))
    assert blocks.keys() == PLACES.keys()
    for kind, code in blocks.items():
        folder = PLACES[kind]
        monkeypatch.setitem(sys.modules, folder, ModuleType(folder))
        module = ModuleType(f"{folder}.record")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, str(PAGE), "exec"), vars(module))  # noqa: S102 - our own page
    config = tiny_config(model__architecture="distilbert")
    # Not validated: the schema does not have the name.
    model = config.model.model_copy(update={"architecture": "scaled"})
    return config.model_copy(update={"model": model})


def test_its_records_speak_of_one_model(config: PipelineConfig) -> None:
    model = build_model(config)
    variables = named_variables(model)
    for weight in architecture.weights(config.model, next_sentence=False):
        (name,) = [name for name in variables if name.endswith(f"/{weight.variable}")]
        assert tuple(variables.pop(name).shape) == weight.shape
    assert not variables
    count = sum(math.prod(variable.shape) for variable in model.variables)
    assert weight_count(config) == count
    assert architecture.architecture_of(config.model).hugging_face.model_type == "scaled"
    for variable in trained_variables(model, config):
        assert 0 < architecture_of(config.model).scale(variable) <= 1


def test_it_computes_what_it_says(config: PipelineConfig) -> None:
    encoders = {}
    for name in ("distilbert", "scaled"):
        model = config.model.model_copy(update={"architecture": name})
        built = build_model(config.model_copy(update={"model": model}))
        encoders[name] = built.encoder_network
    ids, ones = tf.constant([[5, 6, 7, 8]]), tf.ones([1, 4], tf.int32)
    plain, scaled = (encoders[name].embed(ids, ones).numpy() for name in ("distilbert", "scaled"))
    words = encoders["distilbert"]._embedding_layer(ids).numpy()
    width = config.model.hidden_size
    # Of one seed, so that both have the same weights.
    np.testing.assert_allclose(scaled - plain, words * (math.sqrt(width) - 1), atol=1e-5)
