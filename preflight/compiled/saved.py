"""Finds figures of compiled steps, which ship with the project, by the settings that matter.

Needs neither TensorFlow nor a compiler, so a form can show them.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from pipeline_config import PipelineConfig
from preflight.compiled.errors import CheckError
from preflight.compiled.figures import Figures
from preflight.compiled.slices import chip_named, replicas

FILE = Path(__file__).with_name("figures.json")
# All settings that change the program, besides the chip and the rows of a replica.
SETTINGS = (
    "masking.max_seq_length",
    "masking.max_predictions_per_seq",
    "masking.packing",
    "model.architecture",
    "model.vocab_size",
    "model.hidden_size",
    "model.num_hidden_layers",
    "model.num_attention_heads",
    "model.intermediate_size",
    "model.max_position_embeddings",
    "model.type_vocab_size",
    "model.hidden_act",
    "model.hidden_dropout_prob",
    "model.attention_probs_dropout_prob",
    "optimizer.type",
    "optimizer.learning_rate_schedule",
    "optimizer.weight_decay_rate",
    "training.gradient_accumulation_steps",
    "training.frozen_layers",
    "training.mixed_precision_dtype",
    "training.residual_dtype",
)


def find(config: PipelineConfig, file: Path = FILE) -> Figures | None:
    """Return the saved figures of a run's training step, or None if it was never compiled."""
    try:
        chip = chip_named(None, config)
    except CheckError:
        return None
    rows, settings = config.training.global_batch_size // replicas(config), settings_of(config)
    for entry in _read(file):
        found = Figures(**entry["figures"])
        if (entry["settings"], found.chip, found.rows) == (settings, chip.name, rows):
            return found
    return None


def save(config: PipelineConfig, figures: Figures, file: Path = FILE) -> None:
    """Save the figures of a training step, replacing earlier ones of the same name."""
    entry = {"settings": settings_of(config), "figures": dataclasses.asdict(figures)}
    others = [old for old in _read(file) if old["figures"]["name"] != figures.name]
    entries = sorted([*others, entry], key=lambda item: str(item["figures"]["name"]))
    file.write_text(json.dumps(entries, indent=1) + "\n")


def settings_of(config: PipelineConfig) -> dict[str, Any]:
    """Return the settings that determine the compiled program, by name."""
    return {
        name: getattr(getattr(config, name.partition(".")[0]), name.partition(".")[2])
        for name in SETTINGS
    }


def _read(file: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return entries
