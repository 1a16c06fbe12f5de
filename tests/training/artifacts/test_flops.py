"""Model FLOPs: the formula against what XLA's programs really multiply, and the peaks of chips."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipeline_config import PipelineConfig
from pipeline_config.loading import with_overrides
from preflight.compiled.slices import CHIPS
from tests.training.corpora import tiny_config
from trained_models.architectures.architecture import step_flops
from trained_models.flops import PEAK_FLOPS_PER_CHIP, available_flops, peak_flops
from trained_models.phases import phases
from verification.tpu_compile_check import steps
from verification.tpu_compile_check.export import step_hlo
from verification.tpu_compile_check.lint import instructions, load

# Not so small that what is not counted, such as gathers written as products, would matter.
SHAPE = {
    "masking__max_seq_length": 64,
    "masking__max_predictions_per_seq": 10,
    "model__vocab_size": 2048,
    "model__hidden_size": 128,
    "model__num_hidden_layers": 3,
    "model__num_attention_heads": 4,
    "model__intermediate_size": 512,
    "model__max_position_embeddings": 64,
    "training__global_batch_size": 4,
}


def multiplied(config: PipelineConfig) -> int:
    """Return the FLOPs of all matrix products in the exported program of a training step."""
    module = load(step_hlo(steps.training_step(config, config.training.global_batch_size)))
    by_id = {item.id: item for item in instructions(module)}
    total = 0
    for item in by_id.values():
        if item.opcode == "dot":
            contracted = by_id[item.operand_ids[0]].shape.dimensions
            sizes = [contracted[d] for d in item.dot_dimension_numbers.lhs_contracting_dimensions]
            total += 2 * math.prod(item.shape.dimensions) * math.prod(sizes)
    return total


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        {"training__frozen_layers": 2},
        {"masking__packing": "segment_pair"},
    ],
    ids=["plain", "frozen", "pairs"],
)
def test_formula_counts_the_products_of_the_exported_step(overrides: dict[str, Any]) -> None:
    config = tiny_config(**SHAPE | overrides)
    (phase,) = phases(config)
    assert step_flops(config, phase) == pytest.approx(multiplied(config), rel=0.03)


@pytest.mark.parametrize(("layers", "tflop"), [(12, 18.06), (2, 3.637)])
def test_formula_agrees_with_the_tpu_compiler(layers: int, tflop: float) -> None:
    # What libtpu 0.0.42.1 reports for 256 rows of BERT-base, and of two of its layers, on a v5e.
    shape = {"training.global_batch_size": 256, "model.num_hidden_layers": layers}
    config = with_overrides(PipelineConfig(), shape)
    (phase,) = phases(config)
    assert step_flops(config, phase) == pytest.approx(tflop * 1e12, rel=0.02)


def test_each_phase_has_its_own_count() -> None:
    config = tiny_config(
        masking__extra_max_seq_length=32,
        masking__extra_max_predictions_per_seq=8,
        training__extra_steps_fraction=0.25,
        training__extra_global_batch_size=4,
    )
    main, extra = (step_flops(config, phase) for phase in phases(config))
    # Half the rows of twice the length: the same but for attention.
    assert main < extra < 1.1 * main


def test_peak_is_that_of_all_chips() -> None:
    assert peak_flops("v5litepod-8") == 8 * 197e12
    # Named after its cores, two a chip.
    assert peak_flops("v5p-8") == 4 * 459e12
    assert peak_flops("v9-1") is None
    assert PEAK_FLOPS_PER_CHIP.keys() == {chip.family for chip in CHIPS.values()}


def test_only_the_peak_of_a_tpu_is_known() -> None:
    settings = {"training__global_batch_size": 8, "tpu__accelerator_type": "v5litepod-8"}
    assert available_flops(tiny_config(**settings)) is None
    on_tpu = tiny_config(**settings, training__distribution_strategy="tpu")
    assert available_flops(on_tpu) == 8 * 197e12
