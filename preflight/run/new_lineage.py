"""Estimates the cost of a new lineage, for messages about settings that are frozen in this one."""

from __future__ import annotations

from model_registry.versions import manifests
from pipeline_config import ConfigError, PipelineConfig, parse_config
from pipeline_store import uris
from pipeline_store.formats import (
    FormatError,
    ModelVersion,
    PartitionManifest,
    ProductionPointer,
)
from pipeline_store.layout import StoreLayout, VersionLayout
from preflight.estimates.estimates import time_and_cost
from preflight.estimates.speed import Speed, find_speed


def new_lineage_words(config: PipelineConfig, store: StoreLayout) -> str:
    """Return a sentence with a new lineage's initial weights and the estimated cost of training it.

    The estimate is for as many steps as the model in use had, on all partitions that it has seen.
    Empty if there is no such model, or its files cannot be read.
    """
    lineage = store.lineage(config.model.lineage_id)
    try:
        pointer = ProductionPointer.load_or_none(lineage.production)
        if pointer is None:
            return ""
        version = VersionLayout(lineage.version(pointer.version_id))
        model = ModelVersion.load(version.model)
        seen = [PartitionManifest.load(uri) for uri in manifests(lineage, model).values()]
        documents = sum(manifest.documents for manifest in seen)
        rows = sum(manifest.training_rows for manifest in seen)
        speed, unlike = _speed(config, version, store, model.train_steps_total)
    except (FileNotFoundError, FormatError, ConfigError):
        # The check that asks for the sentence reports the damage.
        return ""
    count = len(seen)
    return (
        f"A new lineage begins {_beginning(config)}, and what the model in use has learned is "
        f"trained again. Estimate: {model.train_steps_total:,} steps, as many "
        f"as made {model.version_id}, on its {count} {'partition' if count == 1 else 'partitions'} "
        f"({documents:,} documents, {rows:,} rows): {time_and_cost(config, speed)}{unlike}."
    )


def _beginning(config: PipelineConfig) -> str:
    if config.model.init_checkpoint is not None:
        return "with model.init_checkpoint, a model that has learned its language already"
    if config.model.from_scratch:
        return "with random weights (model.from_scratch)"
    return "with the published model that model.init_checkpoint then has to name"


def _speed(
    config: PipelineConfig, version: VersionLayout, store: StoreLayout, steps: int
) -> tuple[Speed | None, str]:
    """Return the speed for the given number of steps, and a remark on what it is based on."""
    speed = find_speed(_with_steps(config, steps), store)
    if speed is not None:
        return speed, f" (by: {speed.basis})"
    used = parse_config(uris.read(version.config), version.config)
    speed = find_speed(_with_steps(used, steps), store)
    if speed is None:
        return None, ""
    return speed, f" (at the speed of the model in use, not of the one asked for; {speed.basis})"


def _with_steps(config: PipelineConfig, steps: int) -> PipelineConfig:
    training = config.training.model_copy(update={"train_steps": steps})
    return config.model_copy(update={"training": training})
