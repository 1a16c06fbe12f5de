"""The command line of pipeline_config, its page and the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_config import (
    FinetuningConfig,
    PipelineConfig,
    load_preset,
    parse_config,
    preset_names,
)
from pipeline_config.__main__ import PAGE, main
from pipeline_config.docs_table import config_page, reasons
from pipeline_config.loading import Schema, fields
from pipeline_config.settings import load_settings


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == config_page(), "run: python -m pipeline_config docs"


def test_the_page_explains_every_setting() -> None:
    page = config_page()
    for name, field in fields():
        assert f"| `{name}` |" in page
        assert field.description


def test_show_lists_what_a_preset_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--preset", "smoke", "--set", "corpus.partition=2026"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "* training.train_steps = 400" in lines
    assert "* corpus.partition = 2026" in lines
    assert "  optimizer.type = adamw" in lines
    assert len(lines) == len(list(fields()))


def test_show_json_is_a_stored_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--preset", "smoke", "--json"]) == 0
    assert parse_config(capsys.readouterr().out.encode(), "-") == load_preset("smoke")


def test_show_refuses_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "model.num_attention_heads=3", "--set", "training.steps=1"]
    assert main(["show", "--preset", "smoke", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2


def test_help_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline_config", "--help"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "docs" in done.stdout
    assert "show" in done.stdout


def test_only_pydantic_is_needed() -> None:
    code = """
import sys
before = set(sys.modules)
import pipeline_config, pipeline_config.settings
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(*(name for name in new if name not in sys.stdlib_module_names and name.isidentifier()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    of_pydantic = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
    assert set(done.stdout.split()) <= {"pipeline_config", "pydantic"} | of_pydantic


def test_settings_come_from_the_environment() -> None:
    defaults = load_settings({})
    assert os.path.isabs(defaults.store_uri)
    assert defaults.preset == "bert_base_v5e"
    changed = load_settings({"REPRETRAIN_STORE_URI": "gs://b/s", "REPRETRAIN_OWNER": "me"})
    assert (changed.store_uri, changed.owner) == ("gs://b/s", "me")


@pytest.mark.parametrize("schema", [PipelineConfig, FinetuningConfig])
def test_each_value_of_a_preset_for_real_use_has_a_reason(schema: Schema) -> None:
    for preset in preset_names(schema):
        found = {one.name: one.reason for one in reasons(preset, schema)}
        assert found
        if not preset.endswith("smoke"):
            assert [name for name, reason in found.items() if len(reason) < 5] == []
            page = config_page()
            assert all(f"| {reason} |" in page for reason in found.values())
