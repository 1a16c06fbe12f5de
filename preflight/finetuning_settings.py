"""Completes the settings of a fine-tuning run with values from the store."""

from __future__ import annotations

from model_registry import finetuning_plans
from model_registry.errors import RegistryError
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    parse_config,
    with_overrides,
)
from pipeline_store import uris
from pipeline_store.layout import StoreLayout, VersionLayout


def completed(config: FinetuningConfig, store: StoreLayout) -> FinetuningConfig:
    """Return the settings with the version, and the tasks of a source run, taken from the store.

    :raises ConfigError: there is no such model or run, or no task is named.
    """
    recipe = config.finetuning
    try:
        if recipe.source_run is None:
            if not recipe.tasks:
                line = "finetuning.tasks: name at least one: a folder tasks/NAME with a task.toml."
                raise ConfigError([line])
            if config.text_to_text.init_checkpoint is not None:
                return config
            version = finetuning_plans.chosen_version(store, config).version_id
            return with_overrides(config, {"encoder.version": version})
        plan = finetuning_plans.source_plan(store, config)
    except RegistryError as error:
        raise ConfigError([str(error)]) from error
    if plan.lineage_id != config.encoder.lineage_id:
        line = f"encoder.lineage_id: {config.encoder.lineage_id}, but run {recipe.source_run} "
        raise ConfigError([f"{line}fine-tuned a model of {plan.lineage_id}; name that lineage."])
    chosen = {
        "encoder.version": plan.models[finetuning_plans.MODEL].version_id,
        "finetuning.tasks": recipe.tasks or sorted(plan.manifests),
    }
    return with_overrides(config, chosen)


def rental_settings(config: FinetuningConfig) -> PipelineConfig:
    """Return the settings that both kinds of runs share, in the form that cloud checks take."""
    return PipelineConfig(tpu=config.tpu, budget=config.budget, beam=config.beam)


def encoder_config(config: FinetuningConfig, store: StoreLayout) -> PipelineConfig:
    """Return the configuration with which the version to fine-tune was trained.

    :raises FileNotFoundError: there is no such version.
    """
    lineage = store.lineage(config.encoder.lineage_id)
    place = VersionLayout(lineage.version(str(config.encoder.version))).config
    return parse_config(uris.read(place), place)


def trial_count(config: FinetuningConfig) -> int:
    """Return the number of trainings of the run."""
    recipe = config.finetuning
    models = 1 + len(config.encoder.compare_with)
    seeds = len(recipe.learning_rates) * len(recipe.random_seeds)
    return len(recipe.tasks) * models * seeds
