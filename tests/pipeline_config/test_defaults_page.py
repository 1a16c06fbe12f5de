"""docs/reference/defaults.md has a reason for each value that a preset for real use takes over."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pipeline_config import PipelineConfig, load_preset, preset_names
from pipeline_config.docs_table import _flat, _value, reasons
from pipeline_config.loading import PRESETS, fields

PAGE = Path(__file__).parents[2] / "docs/reference/defaults.md"
REAL = [name for name in preset_names() if not name.endswith("smoke")]
GROUNDS = ("measured: [", "source: ", "*argued*: ", "*off*")
_ROW = re.compile(r"\| `(?P<name>[a-z_.0-9]+)` \| (?P<value>.*?) ?\| (?P<why>.+) \|")


def rows() -> list[re.Match[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    found = [match for line in lines if (match := _ROW.fullmatch(line))]
    assert len(found) == len(lines)
    return found


def explained(preset: str) -> set[str]:
    """Return the settings that a preset's file, or one that it extends, gives a reason for."""
    parent = tomllib.loads((PRESETS / f"{preset}.toml").read_text()).get("extends")
    own = {reason.name for reason in reasons(preset, PipelineConfig)}
    return own | (explained(parent) if parent else set())


def test_each_value_that_a_preset_takes_over_has_a_reason() -> None:
    assert REAL
    taken_over = {}
    for preset in REAL:
        values, own = _flat(load_preset(preset)), explained(preset)
        taken_over |= {name: _value(values[name]) for name, _ in fields() if name not in own}
    assert {row["name"]: row["value"] for row in rows()} == taken_over
    assert len(rows()) == len(taken_over)


def test_a_reason_says_what_it_rests_on() -> None:
    assert [row["name"] for row in rows() if not row["why"].startswith(GROUNDS)] == []
