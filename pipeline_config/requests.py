"""Applies requests to presets, and defines which settings only the installation may change.

A request comes from outside the installation: the trigger form, REST, a backfill's conf. Its values
override those of a preset, which the installation chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from pipeline_config.finetuning import FinetuningConfig
from pipeline_config.loading import Config, ConfigError, Schema, fields, with_overrides
from pipeline_config.schema import PipelineConfig
from pipeline_config.sections import Mark

_USUAL: dict[Schema, tuple[str, ...]] = {
    PipelineConfig: (
        "corpus.partition",
        "model.lineage_id",
        "model.init_checkpoint",
        "training.max_passes",
        "training.train_steps",
        "budget.max_cost",
        "budget.max_hours",
        "run.dry_run",
    ),
    FinetuningConfig: (
        "finetuning.tasks",
        "encoder.lineage_id",
        "encoder.version",
        "encoder.compare_with",
        "finetuning.num_train_epochs",
        "budget.max_cost",
        "budget.max_hours",
        "run.dry_run",
    ),
}
"""Settings in the first section of a form, in order."""


def marked(schema: Schema, *marks: Mark) -> Iterator[str]:
    """Yield the names of the settings that have one of the marks."""
    for name, field in fields(schema):
        if any(mark in field.metadata for mark in marks):
            yield name


def locked_settings(schema: Schema, patterns: Iterable[str]) -> set[str]:
    """Return the names of the settings that requests may not change.

    :param patterns: name patterns of settings that this installation also locks, such as
        ``promotion.*``.
    """
    names = [name for name, _ in fields(schema)]
    return set(marked(schema, Mark.BY_INSTALLATION)) | {
        name for name in names for pattern in patterns if fnmatchcase(name, pattern)
    }


def form_sections(schema: Schema, patterns: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the settings that a form has a field for, by section, in order.

    The first section has the settings that usually differ between runs; the others are the
    schema's.

    :param patterns: as for :func:`locked_settings`.
    """
    locked = locked_settings(schema, patterns)
    usual = [name for name in _USUAL[schema] if name not in locked]
    sections = {"usual": usual}
    for name, _ in fields(schema):
        if name not in locked and name not in usual:
            sections.setdefault(f"advanced: {name.partition('.')[0]}", []).append(name)
    return {title: names for title, names in sections.items() if names}


def with_request(preset: Config, conf: Mapping[str, Any], patterns: Iterable[str]) -> Config:
    """Return a preset's configuration with a request's values applied to it.

    A request may name a locked setting with the value that the preset has.

    :param patterns: as for :func:`locked_settings`.
    :raises ConfigError: as :func:`pipeline_config.with_overrides`, or a locked setting would
        change.
    """
    before = preset.model_dump(mode="json")
    locked = locked_settings(type(preset), patterns) & conf.keys()
    try:
        config = with_overrides(preset, conf)
    except ConfigError as error:
        named = {name for name in locked if conf[name] != _value(before, name)}
        raise ConfigError(_locked(named) + list(error.violations)) from error
    after = config.model_dump(mode="json")
    if changed := {name for name in locked if _value(after, name) != _value(before, name)}:
        raise ConfigError(_locked(changed))
    return config


def _locked(names: Iterable[str]) -> list[str]:
    return [
        f"{name}: only the installation sets this; leave it out of the request, or have it changed "
        "in the installation's preset."
        for name in sorted(names)
    ]


def named_paths(config: PipelineConfig | FinetuningConfig, *marks: Mark) -> dict[str, list[str]]:
    """Return the paths and patterns that a configuration names, by setting, without empty ones.

    :param marks: only settings with one of these marks are included.
    """
    content = config.model_dump(mode="json")
    values = {name: _value(content, name) for name in marked(type(config), *marks)}
    several = set(marked(type(config), Mark.TEXT_PATH))
    return {
        name: [part.strip() for part in value.split(",") if part.strip()]
        if name in several
        else [value]
        for name, value in values.items()
        if value
    }


def _value(content: dict[str, Any], name: str) -> Any:
    section, _, key = name.partition(".")
    return content[section][key]
