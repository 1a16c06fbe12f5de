"""Presets, overrides and stored configurations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
    parse_config,
    preset_names,
    with_overrides,
)
from pipeline_config.accelerators import BELIEVED, READ, chips, more_zones, region_of
from pipeline_config.loading import fields, parse_overrides

REPOSITORY = Path(__file__).parents[2]
SMOKE = load_preset("smoke")


def refused(overrides: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        with_overrides(SMOKE, overrides)
    return caught.value.violations


def test_the_presets_that_ship() -> None:
    assert {"smoke", "bert_base_v5e", "bert_base_v5e_512"} <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_presets_load_and_survive_storage(name: str) -> None:
    config = load_preset(name)
    assert parse_config(config.to_bytes(), "uri") == config


@pytest.mark.parametrize("name", [n for n in preset_names() if not n.endswith("smoke")])
def test_a_smoke_twin_differs_only_in_size_and_patience(name: str) -> None:
    real, twin = load_preset(name), load_preset(f"{name}_smoke")
    # What is rented, how it is masked and how numbers are represented is what the twin tries out.
    assert twin.tpu.accelerator_type == real.tpu.accelerator_type
    assert twin.tpu.runtime_version == real.tpu.runtime_version
    assert twin.tpu.zones == real.tpu.zones
    assert twin.tpu.provisioning_model == real.tpu.provisioning_model
    assert twin.masking == real.masking
    assert twin.training.mixed_precision_dtype == real.training.mixed_precision_dtype
    assert twin.optimizer.type == real.optimizer.type
    assert twin.training.steps <= 50 < real.training.max_train_steps
    assert twin.model.hidden_size < real.model.hidden_size


@pytest.mark.parametrize("name", ["bert_base_v5e", "bert_base_v5e_512"])
def test_a_tpu_vm_has_time_to_pull_its_image_and_a_trial_has_chip_hours_for_two(name: str) -> None:
    script = (REPOSITORY / "tpu_lifecycle" / "boot" / "boot_container.sh").read_text()
    found = re.search(r"^readonly PULL_SECONDS=(\d+)", script, re.MULTILINE)
    assert found is not None
    # The trial of docs/start/where-to-run.md.
    trial = {
        "training.train_steps": 200,
        "training.checkpoint_interval": 100,
        "optimizer.warmup_steps": 20,
        "budget.max_chip_hours": 8.0,
        "budget.max_cost": 10.0,
        "budget.price_per_chip_hour": 1.2,
    }
    config = with_overrides(load_preset(name), trial)
    seconds = config.tpu.boot_timeout_seconds
    assert seconds > int(found[1])
    assert config.budget.max_chip_hours is not None
    assert 2 * seconds / 3600 * chips(config.tpu.accelerator_type) < config.budget.max_chip_hours


def test_presets_for_real_use_name_all_zones_of_their_region() -> None:
    presets = [
        *(load_preset(name) for name in preset_names(PipelineConfig) if "smoke" not in name),
        *(load_finetuning_preset(n) for n in preset_names(FinetuningConfig) if "smoke" not in n),
    ]
    assert len(presets) == 4
    for tpu in (preset.tpu for preset in presets):
        family = tpu.accelerator_type.rpartition("-")[0]
        assert {*tpu.zones} <= {*READ[family], *BELIEVED.get(family, ())}
        assert len({region_of(zone) for zone in tpu.zones}) == 1
        assert more_zones(tpu.accelerator_type, tpu.zones) == []
        assert not tpu.allow_other_regions


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"preset: 'smoky' does not exist.*'smoke'"):
        load_preset("smoky")


@pytest.mark.parametrize("name", ["../presets/smoke", "/absent/own.toml"])
def test_a_path_that_is_no_preset_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_preset(name)


def test_a_preset_of_ones_own_extends_another(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('extends = "smoke"\n[tpu]\nzones = ["europe-west4-b"]\n')
    config = load_preset(str(own))
    assert config.tpu.zones == ["europe-west4-b"]
    assert config.training == SMOKE.training


def test_empty_text_means_no_value_where_there_may_be_none() -> None:
    assert with_overrides(SMOKE, {"corpus.partition": ""}).corpus.partition is None
    with pytest.raises(ConfigError, match=r"corpus\.input_pattern"):
        with_overrides(SMOKE, {"corpus.input_pattern": ""})


def test_overrides_replace_and_keep() -> None:
    config = with_overrides(SMOKE, {"training.train_steps": 200, "corpus.partition": "p"})
    assert (config.training.train_steps, config.corpus.partition) == (200, "p")
    assert config.model == SMOKE.model
    assert SMOKE.training.train_steps == 400


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("training.train_step", "training.train_steps"),
        ("training.trainsteps", "training.train_steps"),
        ("optimizer.learningrate", "optimizer.learning_rate"),
        ("masking.max_sequence_length", "masking.max_seq_length"),
        ("tpu.zone", "tpu.zones"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(key: str, suggestion: str) -> None:
    [line] = refused({key: 1})
    assert line == f"{key}: there is no such setting. Did you mean '{suggestion}'?"


def test_an_unknown_key_without_a_neighbour_points_to_the_docs() -> None:
    [line] = refused({"qqqqqq": 1})
    assert line == "qqqqqq: there is no such setting. See docs/reference/config.md for the names."


@pytest.mark.parametrize("value", ["300", 300, 300.0])
def test_steps_are_a_number_or_auto(value: Any) -> None:
    # A form has a text field for them.
    assert with_overrides(SMOKE, {"training.train_steps": value}).training.train_steps == 300
    auto = {"training.train_steps": "auto", "training.max_passes": None}
    config = with_overrides(SMOKE, auto)
    assert parse_config(config.to_bytes(), "uri").training.train_steps == "auto"
    for wrong in ("automatic", 0, "0", 1.5, None):
        [line] = refused({"training.train_steps": wrong})
        assert line.startswith("training.train_steps: Input should be auto, or a whole number")


def test_nested_settings_are_refused_with_the_right_spelling() -> None:
    [line] = refused({"training": {"train_steps": 5}})
    assert line.startswith("training: settings are not nested; write 'training.train_steps'")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("training.max_train_steps", 0, "greater than or equal to 1"),
        ("training.max_train_steps", "many", "valid integer"),
        ("training.max_train_steps", 1.5, "valid integer"),
        ("training.max_train_steps", None, "valid integer"),
        ("masking.masked_lm_prob", 1.0, "less than 1"),
        ("masking.masked_lm_prob", float("nan"), "finite number"),
        ("optimizer.type", "adam", "'adamw', 'lamb' or 'amos'"),
        ("tpu.zones", [], "at least 1 item"),
        ("tpu.zones", ["Moon"], "a zone of Google Cloud"),
        ("tpu.accelerator_type", "v5litepod-0", "a TPU type, a hyphen and a number"),
        ("model.lineage_id", "My Models", "small letters, digits and hyphens"),
        ("corpus.partition", 20260131, "valid string"),
    ],
)
def test_limits_are_refused_by_name(key: str, value: Any, said: str) -> None:
    [line] = refused({key: value})
    assert line.startswith(key)
    assert said in line
    assert "received" in line


def test_every_violation_is_listed_at_once() -> None:
    lines = refused(
        {
            "train.train_steps": 5,
            "model": {"hidden_size": 64},
            "model.num_attention_heads": 3,
            "vocabulary.size": 9000,
        }
    )
    assert [line.split(":")[0] for line in lines] == [
        "train.train_steps",
        "model",
        "model.num_attention_heads",
        "vocabulary.size",
    ]
    lines = refused({"train.train_steps": 5, "training.max_to_keep": 0, "model.hidden_size": 1})
    assert len(lines) == 3


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=30), st.integers() | st.text() | st.none(), min_size=1))
def test_nothing_unknown_is_ever_ignored(overrides: dict[str, Any]) -> None:
    known = dict(fields())
    unknown = [key for key in overrides if key not in known]
    if unknown:
        lines = refused(overrides)
        assert all(any(line.startswith(f"{key}: ") for line in lines) for key in unknown)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("training.train_steps=200", 200),
        ("optimizer.learning_rate=1e-3", 1e-3),
        ("tpu.enable_external_ips=true", True),
        ("tpu.zones=us-west4-a,us-central1-a", ["us-west4-a", "us-central1-a"]),
        ('tpu.zones=["us-west4-a"]', ["us-west4-a"]),
        ("corpus.partition=20260131", "20260131"),
        ("corpus.partition=2026-01-31", "2026-01-31"),
        ("corpus.partition=", None),
        ("vocabulary.uri=null", None),
        ("corpus.text_field=true", "true"),
        ("corpus.input_pattern=/data/a=b/*", "/data/a=b/*"),
        ("budget.max_cost=null", None),
        ("budget.max_cost=12.5", 12.5),
        ("optimizer.type=lamb", "lamb"),
    ],
)
def test_words_of_a_command_line(word: str, value: Any) -> None:
    overrides = parse_overrides([word])
    assert overrides == {word.partition("=")[0]: value}
    with_overrides(SMOKE, overrides)


def test_words_without_a_value_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_overrides(["training.train_steps", "model.hidden_size=64", "x"])
    assert [line.split(":")[0] for line in caught.value.violations] == ["training.train_steps", "x"]


def stored(**changes: Any) -> bytes:
    return json.dumps(json.loads(SMOKE.to_bytes()) | changes).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a stored configuration"),
        (b"[]", "not a stored configuration"),
        (b"{}", "not a stored configuration"),
        (SMOKE.to_bytes()[:-40], "not a stored configuration"),
        (stored(format="holder"), "another format; this program reads 'pipeline-config'"),
        (stored(format_version=2), "version 2; this program reads 'pipeline-config' version 1"),
        (stored(extra={}), "a name that is not known"),
        (stored(training={"train_steps": 0}), "training.train_steps"),
        (stored(model={"num_attention_heads": 7}), "model.num_attention_heads"),
    ],
)
def test_damaged_configurations_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(data, "/store/config.json")
    assert all(line.startswith("/store/config.json: ") for line in caught.value.violations)
    assert said in str(caught.value)


HASHED: dict[str, dict[str, Any]] = {
    "data_sha256": {"masking.random_seed": 7, "vocabulary.do_lower_case": False},
    "training_sha256": {"optimizer.learning_rate": 1e-5, "model.hidden_dropout_prob": 0.1},
}
NOT_HASHED: dict[str, dict[str, Any]] = {
    "data_sha256": {"corpus.partition": "p", "training.train_steps": 600, "tpu.zones": ["a-b1-c"]},
    "training_sha256": {"training.checkpoint_interval": 100, "budget.max_hours": 2.0},
}


@pytest.mark.parametrize("name", HASHED)
def test_hashes_follow_what_they_stand_for(name: str) -> None:
    for key, value in HASHED[name].items():
        changed = with_overrides(SMOKE, {key: value})
        assert getattr(changed, name) != getattr(SMOKE, name), key
    for key, value in NOT_HASHED[name].items():
        changed = with_overrides(SMOKE, {key: value})
        assert getattr(changed, name) == getattr(SMOKE, name), key
        assert changed.sha256 != SMOKE.sha256


def test_a_choice_of_partitions_that_came_later_is_no_part_of_a_training() -> None:
    choices = ("own", "left_out", "unseen")
    hashes = [
        with_overrides(SMOKE, {"training.partitions": name}).training_sha256 for name in choices
    ]
    # Its records are. "unseen" has counted from the beginning: trainings that began then go on.
    assert hashes[0] == hashes[1] != hashes[2]


def test_where_scores_decide_the_weights_depend_on_when_there_are_scores() -> None:
    chosen = {"training.keep_best": True, "evaluation.rows_per_checkpoint": 1000}
    plain, best = SMOKE, with_overrides(SMOKE, chosen)
    for change in ({"training.checkpoint_interval": 100}, {"evaluation.rows_per_checkpoint": 500}):
        assert with_overrides(best, change).training_sha256 != best.training_sha256
        assert with_overrides(plain, change).training_sha256 == plain.training_sha256


def test_equal_configurations_have_equal_bytes() -> None:
    assert with_overrides(SMOKE, {}).to_bytes() == SMOKE.to_bytes()
    assert PipelineConfig().sha256 == PipelineConfig().sha256


@pytest.mark.parametrize("value", [True, "inf", "nan", float("inf")])
def test_a_limit_that_limits_nothing_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"budget\.max_cost"):
        with_overrides(load_preset("smoke"), {"budget.max_cost": value})
