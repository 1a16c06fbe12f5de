"""The one configuration schema; it needs nothing but pydantic, so every part can import it."""

from __future__ import annotations

from pipeline_config.loading import (
    ConfigError,
    load_preset,
    parse_config,
    preset_names,
    with_overrides,
)
from pipeline_config.schema import PipelineConfig

__all__ = [
    "ConfigError",
    "PipelineConfig",
    "load_preset",
    "parse_config",
    "preset_names",
    "with_overrides",
]
