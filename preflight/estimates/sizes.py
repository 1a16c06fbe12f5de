"""Sizes of checkpoints and records by the settings alone, and sizes in words. Estimates."""

from __future__ import annotations

import math

from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from preflight.estimates.rows import text_characters

# A row of 128 tokens is some 600 characters of text and 800 bytes of record.
_RECORD_BYTES_PER_CHARACTER = 2
FLOAT_BYTES = 4


def checkpoint_bytes(config: PipelineConfig) -> int:
    """Return the size of a checkpoint: the weights, and what the optimizer keeps for each."""
    copies = 2 if config.optimizer.type == "amos" else 3
    return copies * model_bytes(config)


def model_bytes(config: PipelineConfig) -> int:
    """Return the size of the weights alone."""
    return weight_count(config) * FLOAT_BYTES


def weight_count(config: PipelineConfig) -> int:
    """Return the number of the model's weights, with pooler and masked-LM head."""
    model = config.model
    hidden, inner = model.hidden_size, model.intermediate_size
    rows = model.vocab_size + model.max_position_embeddings + model.type_vocab_size
    attention = 4 * hidden * hidden + 4 * hidden
    feed_forward = 2 * hidden * inner + hidden + inner
    layer = attention + feed_forward + 4 * hidden
    pooler = hidden * hidden + hidden
    head = hidden * hidden + 3 * hidden + model.vocab_size
    return rows * hidden + 2 * hidden + model.num_hidden_layers * layer + pooler + head


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
