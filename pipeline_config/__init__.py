"""The one configuration schema; it needs nothing but pydantic, so every part can import it."""

from __future__ import annotations

from pipeline_config.finetuning import FinetuningConfig
from pipeline_config.loading import (
    ConfigError,
    load_finetuning_preset,
    load_preset,
    parse_config,
    parse_finetuning_config,
    parse_rental_config,
    preset_names,
    with_overrides,
)
from pipeline_config.rental_schema import RentalConfig
from pipeline_config.schema import PipelineConfig
from pipeline_config.task import TaskConfig

__all__ = [
    "ConfigError",
    "FinetuningConfig",
    "PipelineConfig",
    "RentalConfig",
    "TaskConfig",
    "load_finetuning_preset",
    "load_preset",
    "parse_config",
    "parse_finetuning_config",
    "parse_rental_config",
    "preset_names",
    "with_overrides",
]
