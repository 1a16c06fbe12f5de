"""Compares settings of runs, with a preset or with each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pages.reading import Reader
from pipeline_config import (
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
)
from pipeline_config.settings import load_settings

AnyConfig = PipelineConfig | FinetuningConfig


@dataclass(frozen=True)
class SettingRow:
    """One setting, and its value in each of some configurations."""

    name: str
    values: list[str]


@dataclass(frozen=True)
class SettingsView:
    """The settings of a run, compared with the installation's current preset."""

    preset: str
    changed: list[SettingRow]
    """Settings that differ: the preset's value, then the run's."""
    all: list[SettingRow]
    """Every setting of the run."""


def settings_view(config: AnyConfig | None, reader: Reader) -> SettingsView | None:
    """Return the view of a run's settings; None without settings or without a readable preset."""
    if config is None:
        return None
    settings = load_settings()
    preset: AnyConfig | None
    if isinstance(config, FinetuningConfig):
        name = settings.finetuning_preset
        preset = reader.attempt(lambda: load_finetuning_preset(name))
    else:
        name = settings.preset
        preset = reader.attempt(lambda: load_preset(name))
    if preset is None:
        return None
    return SettingsView(name, differing([preset, config]), all_settings([config]))


def differing(configs: Sequence[AnyConfig]) -> list[SettingRow]:
    """Return the settings that differ between some configurations."""
    return [row for row in all_settings(configs) if len(set(row.values)) > 1]


def all_settings(configs: Sequence[AnyConfig]) -> list[SettingRow]:
    """Return every setting, in the order of the form, with its value in each configuration."""
    flat = [_flat(config.model_dump(mode="json")) for config in configs]
    names = dict.fromkeys(name for one in flat for name in one)
    return [SettingRow(name, [one.get(name, "") for one in flat]) for name in names]


def _flat(content: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{section}.{name}": _text(value)
        for section, part in content.items()
        if isinstance(part, Mapping)
        for name, value in part.items()
    }


def _text(value: Any) -> str:
    """Return a value as it is typed into the form."""
    if value is None or value in ("", []):
        return "(empty)"
    return value if isinstance(value, str) else json.dumps(value)
