"""Names, JSON lines, the table, limits, and figures that are kept for the form."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline_config import PipelineConfig, load_preset, preset_names, with_overrides
from preflight.compiled import saved
from preflight.compiled.errors import CheckError
from preflight.compiled.figures import (
    LIMITS,
    Figures,
    compare,
    comparison_table,
    exceeded,
    figures_of,
    table,
)
from preflight.compiled.programs import program_id
from preflight.compiled.slices import CHIPS, chip_named, replicas
from trained_models.flops import PEAK_FLOPS_PER_CHIP

COMPILED = {
    "fits": True,
    "hbm_bytes": 3 * 2**30,
    "argument_bytes": 2**30,
    "flops": 18.06e12,
    "bytes_accessed": 119.9e9,
    "estimated_cycles": 332_400_000,
    "unknown_loops": 0,
    "versions": {"jaxlib": "0.10.2", "libtpu": "0.0.42.1"},
}


def preset(**overrides: Any) -> PipelineConfig:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return with_overrides(load_preset("bert_base_v5e"), named)


@pytest.fixture
def figures() -> Figures:
    return figures_of(program_id(preset(), 256), CHIPS["v5e"], COMPILED)


def test_names_say_what_was_compiled() -> None:
    dropout = preset(model__hidden_dropout_prob=0.1)
    other = preset(model__num_hidden_layers=3)
    for config, arguments, name in (
        (preset(), {}, "bert_base_256x128_v5e"),
        (dropout, {}, "bert_base_256x128_v5e_dropout0.1"),
        (preset(), {"step": "evaluation"}, "bert_base_256x128_v5e_evaluation"),
        (dropout, {"step": "evaluation"}, "bert_base_256x128_v5e_evaluation"),
        (
            preset(),
            {"source": "tf_models_default"},
            "bert_base_256x128_v5e_tf_models_default",
        ),
        (other, {}, "bert_3x768_256x128_v5e"),
    ):
        wanted = program_id(config, 256, **arguments)
        assert figures_of(wanted, CHIPS["v5e"], COMPILED).name == name


def test_json_line_is_called_an_estimate(figures: Figures) -> None:
    line = json.loads(figures.json_line())
    assert line["name"] == "bert_base_256x128_v5e"
    assert line["estimate"] is True
    assert (line["hbm_gib"], line["tflop"]) == (3.0, 18.06)
    assert (line["bytes_accessed_gb"], line["estimated_cycles"]) == (119.9, 332_400_000)
    assert "peak_share" not in line, "nobody said what the model needs"
    assert line["unproven"] is False


def test_share_of_the_peak_is_model_flops_over_cycles() -> None:
    wanted, flops = program_id(preset(), 256), 18_060_000_000_000
    found = figures_of(wanted, CHIPS["v5e"], COMPILED, flops)
    assert found.model_tflop == 18.06
    # 131,072 operations a cycle at 1.5 GHz are the 197 TFLOP/s that are published.
    assert found.peak_share == pytest.approx(18.06e12 / 332.4e6 * 1.503e9 / 197e12, rel=1e-3)
    other = figures_of(wanted, CHIPS["v6e"], COMPILED, flops)
    assert (other.peak_share, other.unproven) == (None, True)
    assert [chip for chip in CHIPS if CHIPS[chip].unproven] == ["v5p", "v6e"]


def test_cycles_of_each_chip_are_those_of_its_published_peak() -> None:
    # The clock that follows, of v2 to v4 the one in their papers: 0.7, 0.94 and 1.05 GHz.
    clocks = {
        name: PEAK_FLOPS_PER_CHIP[chip.family] / chip.replicas_per_chip / chip.flops_per_cycle / 1e9
        for name, chip in CHIPS.items()
        if chip.flops_per_cycle is not None
    }
    expected = {"v2": 0.69, "v3": 0.94, "v4": 1.05, "v5e": 1.5, "v5p": 1.75}
    assert clocks == pytest.approx(expected, abs=0.01)


def test_a_comparison_names_shape_and_peer_and_has_its_limits(figures: Figures) -> None:
    peer = dataclasses.replace(figures, bytes_accessed_gb=239.8, estimated_cycles=415_500_000)
    found = compare(figures, peer, "tf_models_default")
    name = "bert_base_256x128_v5e_vs_tf_models_default"
    limit = LIMITS[name]
    assert json.loads(found.json_line()) == {
        "name": name,
        "bytes_ratio": 0.5,
        "cycles_ratio": 0.8,
        "bytes_limit": limit.bytes_ratio,
        "cycles_limit": limit.cycles_ratio,
        "estimate": True,
    }


def test_tables_are_aligned_and_complete(figures: Figures) -> None:
    other = dataclasses.replace(figures, peak_share=0.5, model_tflop=18.0, unproven=True)
    lines = table([figures, other]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "332.40" in lines[1]
    assert "(unproven)" in lines[2]
    assert lines[2].endswith("50.0%")
    compared = compare(figures, figures, "tf_models_same_activation")
    lines = comparison_table([compared]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split()[1::2] == ["1.000", "1.000"]


def test_limits_of_the_presets(figures: Figures) -> None:
    good = compare(figures, figures, "tf_models_default")
    limit = LIMITS[good.name]
    good = dataclasses.replace(good, bytes_ratio=limit.bytes_ratio, cycles_ratio=limit.cycles_ratio)
    assert exceeded(good) == []
    bad = dataclasses.replace(good, cycles_ratio=limit.cycles_ratio + 0.001)
    (line,) = exceeded(bad)
    assert "cycles_ratio" in line
    assert good.name in line
    tiny = dataclasses.replace(figures, name="bert_tiny_4x128_v5e", bytes_accessed_gb=1e9)
    assert exceeded(compare(tiny, figures, "tf_models_default")) == []


def test_chip_follows_the_accelerator_type() -> None:
    assert chip_named(None, preset()).name == "v5e"
    assert chip_named("v5p", preset()).name == "v5p"
    with pytest.raises(CheckError, match=r"v7x-4.*v5e"):
        chip_named(None, preset(tpu__accelerator_type="v7x-4"))


@pytest.mark.parametrize(
    ("accelerator_type", "count"),
    [("v5litepod-8", 8), ("v6e-4", 4), ("v5p-8", 4), ("v4-8", 4), ("v3-8", 8), ("v2-8", 8)],
)
def test_replicas_of_a_slice(accelerator_type: str, count: int) -> None:
    assert replicas(preset(tpu__accelerator_type=accelerator_type)) == count


def test_saved_figures_are_found_by_the_settings_that_matter(
    tmp_path: Path, figures: Figures
) -> None:
    file = tmp_path / "figures.json"
    assert saved.find(preset(), file) is None
    saved.save(preset(), figures, file)
    saved.save(preset(), dataclasses.replace(figures, hbm_gib=9.4), file)
    assert saved.find(preset(training__train_steps=7000), file) == dataclasses.replace(
        figures, hbm_gib=9.4
    )
    for other in (
        preset(training__global_batch_size=1024),
        preset(model__hidden_dropout_prob=0.1),
        preset(tpu__accelerator_type="v6e-8"),
        preset(tpu__accelerator_type="v7x-4"),
        preset(optimizer__type="lamb"),
        preset(training__residual_dtype="float32"),
        preset(training__gradient_accumulation_steps=2),
        preset(training__frozen_layers=1),
    ):
        assert saved.find(other, file) is None


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("bert_base")])
def test_shipped_figures_are_those_of_the_shipped_presets(name: str) -> None:
    figures = saved.find(load_preset(name))
    assert figures is not None, f"python -m verification.tpu_compile_check --preset {name} --save"
    assert figures.hbm_gib < 15.75
