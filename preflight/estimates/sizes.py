"""Sizes of checkpoints and records by the settings alone, and sizes in words. Estimates."""

from __future__ import annotations

import math

from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from preflight.estimates.rows import text_characters
from trained_models.architectures.architecture import weights
from trained_models.text_to_text.sizes import Sizes
from trained_models.text_to_text.weights import weights as text_weights

# A row of 128 tokens is some 600 characters of text and 800 bytes of record.
_RECORD_BYTES_PER_CHARACTER = 2
FLOAT_BYTES = 4


def checkpoint_bytes(config: PipelineConfig) -> int:
    """Return the size of a checkpoint: the weights, and what the optimizer keeps for each."""
    copies = 2 if config.optimizer.type == "amos" else 3
    return copies * model_bytes(config)


def text_checkpoint_bytes(sizes: Sizes) -> int:
    """Return the same of a T5, which AdamW trains."""
    return 3 * FLOAT_BYTES * sum(math.prod(weight.shape) for weight in text_weights(sizes))


def model_bytes(config: PipelineConfig) -> int:
    """Return the size of the weights alone."""
    return weight_count(config) * FLOAT_BYTES


def weight_count(config: PipelineConfig) -> int:
    """Return the number of the model's weights, with masked-LM head and, if any, pooler."""
    return sum(math.prod(weight.shape) for weight in weights(config.model, next_sentence=False))


def record_bytes(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return about how many bytes of records the files of a partition make, by their sizes."""
    characters = text_characters(config, partition, store)
    lengths = 1 if config.masking.extra_max_seq_length is None else 2
    return characters * _RECORD_BYTES_PER_CHARACTER * config.masking.dupe_factor * lengths


def size_text(count: float) -> str:
    """Return a number of bytes in the unit that a person would use."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(len(units) - 1, int(math.log(max(count, 1), 1000)))
    return f"{count / 1000**power:.3g} {units[power]}"
