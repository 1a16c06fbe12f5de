"""The runs that this suite writes can be trained where it has its TPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline_config import PipelineConfig, parse_config
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from tests.contract.cloud import Cloud
from tests.contract.test_agent import training_length

PRESETS = ["smoke", "bert_base_v5e_smoke"]


def written(cloud: Cloud, folder: Path, preset: str, **overrides: Any) -> PipelineConfig:
    run = cloud.write_run(StoreLayout(str(folder)), preset, **overrides)
    return parse_config(uris.read(run.config), run.config)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_real_tpu_is_trained_on_whatever_the_preset_is_for(
    cloud: Cloud, tmp_path: Path, preset: str
) -> None:
    config = written(replace(cloud, admin=None), tmp_path, preset)
    assert config.training.distribution_strategy == "tpu"


@pytest.mark.parametrize("preset", PRESETS)
def test_an_emulated_one_is_a_cpu(cloud: Cloud, tmp_path: Path, preset: str) -> None:
    if cloud.is_real:
        pytest.skip("it is about the emulator")
    config = written(cloud, tmp_path, preset)
    assert config.training.distribution_strategy == "one_device"


def test_a_tiny_model_trains_longer_on_a_real_tpu(cloud: Cloud, tmp_path: Path) -> None:
    real = replace(cloud, admin=None)
    config = written(real, tmp_path, PRESETS[1], **training_length(real, PRESETS[1]))
    assert config.training.train_steps == 50_000
    assert config.training.checkpoint_interval == 5_000
    assert training_length(real, "bert_base_v5e") == {"training__train_steps": 20_000}
