"""When a new masked-LM head is trained alone, for how long, and by which settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_config import PipelineConfig, load_preset, preset_names
from pipeline_config.rules import violations
from tests.training.corpora import tiny_config
from trained_models import head_phase
from trained_models.decided_steps import with_steps

ENCODER = {"model__init_checkpoint": "imports/encoder", "model__init_encoder_only": True}


def encoder(**settings: object) -> PipelineConfig:
    return tiny_config(**(ENCODER | settings))


@pytest.mark.parametrize(
    ("update", "steps_behind", "is_new"), [(True, 0, True), (True, 100, False)]
)
def test_of_a_version_its_steps_say(update: bool, steps_behind: int, is_new: bool) -> None:
    found = head_phase.is_head_new(
        "lineages/default/versions/v-1", encoder(), update=update, steps_behind=steps_behind
    )
    assert found is is_new


def test_of_other_weights_their_kind_says(tmp_path: Path) -> None:
    foreign, ours = tmp_path / "hf", tmp_path / "run"
    foreign.mkdir()
    (foreign / "config.json").write_text("{}")
    (foreign / "model.safetensors").touch()
    ours.mkdir()
    (ours / "result.json").touch()
    found = [
        head_phase.is_head_new(str(uri), encoder(), update=False, steps_behind=0)
        for uri in (foreign, ours)
    ]
    assert found == [True, False]


def test_not_of_random_weights_nor_of_a_model_with_its_head() -> None:
    for uri, config in ((None, encoder()), ("imports/bert", tiny_config())):
        assert not head_phase.is_head_new(uri, config, update=False, steps_behind=0)


@pytest.mark.parametrize(
    ("asked", "steps", "expected"),
    [(None, 100, 100), (None, 50_000, head_phase.MOST_STEPS), (30, 100, 30), (0, 100, 0)],
)
def test_steps(asked: object, steps: int, expected: int) -> None:
    config = encoder(training__head_steps=asked, training__train_steps=steps)
    assert head_phase.head_steps(config) == expected


# No published T5 comes without its head.
@pytest.mark.parametrize("name", [name for name in preset_names() if not name.startswith("t5_")])
@pytest.mark.parametrize("steps", [40, 20_000])
def test_of_every_preset_the_settings_break_no_rule(name: str, steps: int) -> None:
    preset = load_preset(name)
    fewest = 2 * preset.training.steps_per_loop
    auto = preset.training.model_copy(update={"train_steps": "auto", "max_passes": 40.0})
    config = with_steps(preset.model_copy(update={"training": auto}), max(steps, fewest))
    alone = head_phase.head_config(config)
    assert violations(alone) == violations(config)
    assert alone.training.frozen_layers == alone.model.num_hidden_layers
