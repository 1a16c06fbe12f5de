"""Frozen layers keep their weights, cost no optimizer state and no backward pass."""

from __future__ import annotations

import pytest

from pipeline_config import PipelineConfig
from preflight.compiled.programs import program_id
from tests.training.corpora import tiny_config
from tests.training.stepping import ROWS, Training, random_batch
from verification.tpu_compile_check.export import export
from verification.tpu_compile_check.lint import instructions, load

EMBEDDINGS = ("word_embeddings", "position_embedding", "type_embeddings", "embeddings/layer_norm")
# More than one layer, so that a frozen one lies below one that is trained.
LAYERS = 3


def frozen(layers: int, **overrides: object) -> PipelineConfig:
    return tiny_config(model__num_hidden_layers=LAYERS, training__frozen_layers=layers, **overrides)


def is_frozen(name: str, layers: int) -> bool:
    below = tuple(f"transformer/layer_{number}/" for number in range(layers))
    return any(part in name for part in EMBEDDINGS + below)


@pytest.mark.parametrize(
    ("layers", "packing"),
    [
        (1, "segment_pair"),
        (LAYERS, "doc_sentences"),
        pytest.param(1, "doc_sentences", marks=pytest.mark.thorough),
        pytest.param(2, "doc_sentences", marks=pytest.mark.thorough),
        pytest.param(2, "segment_pair", marks=pytest.mark.thorough),
        pytest.param(LAYERS, "segment_pair", marks=pytest.mark.thorough),
    ],
)
def test_frozen_layers_keep_their_weights_bit_for_bit(layers: int, packing: str) -> None:
    training = Training(frozen(layers, masking__packing=packing))
    before = training.weights
    training.run(random_batch(), steps=2)
    kept = {name for name, value in training.weights.items() if (value == before[name]).all()}

    expected = {name for name in before if is_frozen(name, layers)}
    if packing == "doc_sentences":
        expected |= {name for name in before if "pooler" in name}
    assert kept == expected
    assert any("word_embeddings" in name for name in kept)


def test_optimizer_has_state_for_trained_weights_only() -> None:
    training = Training(frozen(2))
    trained = {variable.name.removesuffix(":0") for variable in training.variables}
    slots = [weight.name.removesuffix(":0") for weight in training.optimizer.weights[1:]]
    assert len(slots) == 2 * len(trained)
    assert {name.rpartition("/")[0] for name in slots} == trained
    assert not any(is_frozen(name, 2) for name in trained)


def test_no_gradient_is_computed_below_the_lowest_trained_layer() -> None:
    def products(config: PipelineConfig) -> int:
        program = export(config, program_id(config, ROWS))
        return sum(item.opcode == "dot" for item in instructions(load(program.hlo)))

    counts = [products(frozen(layers)) for layers in (0, 1, 2, LAYERS)]
    # Fewer matrix products with every frozen layer: those of its backward pass.
    assert counts == sorted(set(counts), reverse=True)
