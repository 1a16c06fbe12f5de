"""Settings of fine-tuning runs: presets, rules, what is stored, the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    load_finetuning_preset,
    load_preset,
    parse_config,
    parse_finetuning_config,
    parse_rental_config,
    preset_names,
    with_overrides,
)
from pipeline_config.__main__ import main
from pipeline_config.docs_table import config_page
from pipeline_config.finetuning_rules import (
    FINETUNING_RULES,
    finetuning_violations,
    finetuning_worst_case_cost,
)
from pipeline_config.loading import fields, parse_overrides

BASE = load_finetuning_preset("finetuning_smoke")
NAMES = preset_names(FinetuningConfig)

# Rule: a violation of it alone, the setting that the line names first, and words it must contain.
BROKEN: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "_source_run_is_used": (
        {"finetuning.mode": "predict"},
        "finetuning.source_run",
        ["predict", "key"],
    ),
    "_models_are_compared_where_they_are_measured": (
        {"finetuning.mode": "train", "encoder.compare_with": ["start"]},
        "encoder.compare_with",
        ["start", "train_and_eval"],
    ),
    "_exports_are_written": (
        {"finetuning.mode": "train", "finetuning.export_formats": ["hugging_face"]},
        "finetuning.export_formats",
        ["mode train"],
    ),
    "_children_are_of_classifiers": (
        {"finetuning.mode": "train", "compression.children": ["student+trim"]},
        "compression.children",
        ["mode train"],
    ),
    "_nothing_is_trained_twice": (
        # The same in the names of the trials.
        {"finetuning.learning_rates": [3e-5, 3.0000001e-5]},
        "finetuning.learning_rates",
        ["3e-05", "once"],
    ),
    "_batches_fit_the_cores": (
        {
            "finetuning.distribution_strategy": "tpu",
            "tpu.accelerator_type": "v5litepod-8",
            "finetuning.eval_batch_size": 100,
        },
        "finetuning.eval_batch_size",
        ["100", "8 cores"],
    ),
    "_one_host_fine_tunes": (
        {"tpu.slice_count": 2},
        "tpu.slice_count",
        ["2 slices", "finetuning.parallel_tpus"],
    ),
    "_early_stop_has_scores": (
        {"finetuning.early_stop_evaluations": 2, "finetuning.evaluations_per_epoch": 0},
        "finetuning.early_stop_evaluations",
        ["evaluations_per_epoch is 0"],
    ),
    "_frozen_layers_have_no_rates": (
        {"finetuning.frozen_encoder": True, "finetuning.layer_decay": 0.9},
        "finetuning.layer_decay",
        ["0.9", "frozen_encoder"],
    ),
    "_a_t5_is_no_classifier": (
        {"text_to_text.init_checkpoint": "imports/t5", "finetuning.class_weights": "balanced"},
        "finetuning.class_weights",
        ["balanced", "none"],
    ),
    "_all_tpus_stay_in_budget": (
        {"finetuning.parallel_tpus": 4, "budget.max_cost": 4.0},
        "budget.max_cost",
        ["parallel_tpus=4", "4.80", "4.00"],
    ),
}


@pytest.mark.parametrize("rule", FINETUNING_RULES, ids=lambda rule: rule.__name__)
def test_each_rule_refuses_its_violation(rule: Any) -> None:
    overrides, setting, words = BROKEN[rule.__name__]
    with pytest.raises(ConfigError) as caught:
        with_overrides(BASE, overrides)
    [line] = caught.value.violations
    assert line.startswith(f"{setting}: ")
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ({"finetuning.mode": "export", "finetuning.source_run": "0" * 12}, "export_formats"),
        ({"finetuning.source_run": "0" * 12}, "source_run"),
        ({"finetuning.random_seeds": [1, 2, 1]}, "random_seeds"),
        ({"compression.children": ["trim", "trim"]}, "children"),
        ({"compression.children": ["trim+student"]}, "children"),
        ({"compression.children": ["trim"], "finetuning.frozen_encoder": True}, "children"),
        ({"finetuning.tasks": ["sst", "sst"]}, "tasks"),
        (
            {
                "finetuning.distribution_strategy": "tpu",
                "tpu.accelerator_type": "v5litepod-16",
                "finetuning.eval_batch_size": 32,
            },
            "accelerator_type",
        ),
        # Rules of all kinds of runs.
        ({"tpu.zones": ["us-west4-a", "us-west4-a"]}, "tpu.zones"),
        ({"beam.runner": "DataflowRunner"}, "beam.region"),
        ({"budget.max_cost": 1.0}, "budget.max_cost"),
    ],
)
def test_other_violations(overrides: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        with_overrides(BASE, overrides)


def test_the_defaults_and_every_preset_are_sound() -> None:
    assert set(NAMES) >= {"finetuning_base_v5e", "finetuning_smoke"}
    for config in (FinetuningConfig(), *map(load_finetuning_preset, NAMES)):
        assert finetuning_violations(config) == []


def test_each_tpu_has_the_budget() -> None:
    several = with_overrides(BASE, {"finetuning.parallel_tpus": 3})
    assert finetuning_worst_case_cost(several) == pytest.approx(
        3 * finetuning_worst_case_cost(BASE)
    )


def test_the_presets_of_each_kind_are_apart(tmp_path: Path) -> None:
    assert not set(NAMES) & set(preset_names())
    with pytest.raises(ConfigError, match="does not exist"):
        load_preset("finetuning_smoke")
    with pytest.raises(ConfigError, match="does not exist"):
        load_finetuning_preset("smoke")
    own = tmp_path / "own.toml"
    own.write_text('extends = "finetuning_smoke"\n[finetuning]\ntasks = ["sst"]\n')
    assert load_finetuning_preset(str(own)) == with_overrides(BASE, {"finetuning.tasks": ["sst"]})


def test_a_setting_of_the_other_kind_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"training\.train_steps: there is no such setting"):
        with_overrides(BASE, {"training.train_steps": 5})


def test_what_is_stored_is_read_as_its_own_kind_only() -> None:
    data = BASE.to_bytes()
    assert parse_finetuning_config(data, "uri") == BASE
    assert parse_rental_config(data, "uri") == BASE
    with pytest.raises(ConfigError, match="reads 'pipeline-config'"):
        parse_config(data, "uri")
    smoke = load_preset("smoke")
    assert parse_rental_config(smoke.to_bytes(), "uri") == smoke
    with pytest.raises(ConfigError, match="reads 'finetuning-config'"):
        parse_finetuning_config(smoke.to_bytes(), "uri")


def test_a_stored_configuration_that_breaks_a_rule_is_refused() -> None:
    data = BASE.to_bytes().replace(b'"train_and_eval"', b'"predict"')
    with pytest.raises(ConfigError, match=r"uri: finetuning\.source_run"):
        parse_finetuning_config(data, "uri")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("finetuning.learning_rates=3e-5,5e-5", [3e-5, 5e-5]),
        ("finetuning.learning_rates=[3e-5]", [3e-5]),
        ("finetuning.random_seeds=1,2,3", [1, 2, 3]),
        ("finetuning.random_seeds=7", [7]),
        ("finetuning.tasks=docstrings,neighbours", ["docstrings", "neighbours"]),
        ("finetuning.tasks=", []),
        ("encoder.compare_with=previous,start", ["previous", "start"]),
        ("encoder.version=", None),
    ],
)
def test_words_of_a_command_line(word: str, value: Any) -> None:
    overrides = parse_overrides([word], FinetuningConfig)
    assert overrides == {word.partition("=")[0]: value}
    with_overrides(BASE, overrides)


def test_show_lists_a_fine_tuning_preset(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["show", "--finetuning", "--preset", "finetuning_smoke"]
    assert main([*words, "--set", "finetuning.tasks=sst"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "* finetuning.tasks = ['sst']" in lines
    assert len(lines) == len(list(fields(FinetuningConfig)))
    assert main([*words, "--json"]) == 0
    assert parse_finetuning_config(capsys.readouterr().out.encode(), "-") == BASE


def test_the_page_explains_every_setting() -> None:
    page = config_page()
    for name, field in fields(FinetuningConfig):
        assert f"| `{name}` |" in page
        assert field.description
