"""Checks that the disk of a local store has room for what a run writes. An estimate."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.estimates.rows import text_characters

# A row of 128 tokens is some 600 characters of text and 800 bytes of record.
_RECORD_BYTES_PER_CHARACTER = 2
_FLOAT_BYTES = 4
_MARGIN = 1.25
"""For what is not counted: logs, events, the index of documents, a training that resumes."""


def disk_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line when the disk of a local store has less room than the run needs.

    Buckets have no limit.
    """
    if uris.is_cloud(store.root):
        return
    needed = needed_bytes(config, partition, store)
    free = shutil.disk_usage(existing_folder(Path(uris.for_library(store.root)))).free
    if needed > free:
        yield (
            f"store: {store.root} has {size_text(free)} of disk left, and the run needs about "
            f"{size_text(needed)} (an estimate): {config.training.max_to_keep} checkpoints of "
            f"{size_text(checkpoint_bytes(config))}, the records and the model. Free some, use "
            "another store, or lower training.max_to_keep."
        )


def needed_bytes(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return about how many bytes a run adds to the store: records, checkpoints and the model."""
    # One is written while max_to_keep others are there; the best one is kept beside them.
    kept = config.training.max_to_keep + 1 + config.training.keep_best
    versions = 1 + len(config.promotion.export_formats)
    model = kept * checkpoint_bytes(config) + 2 * versions * weight_count(config) * _FLOAT_BYTES
    return int(_MARGIN * (model + _record_bytes(config, partition, store)))


def checkpoint_bytes(config: PipelineConfig) -> int:
    """Return the size of a checkpoint: the weights, and what the optimizer keeps for each."""
    copies = 2 if config.optimizer.type == "amos" else 3
    return copies * weight_count(config) * _FLOAT_BYTES


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


def _record_bytes(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    characters = text_characters(config, partition, store)
    lengths = 1 if config.masking.extra_max_seq_length is None else 2
    return characters * _RECORD_BYTES_PER_CHARACTER * config.masking.dupe_factor * lengths


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def size_text(count: float) -> str:
    """Return a number of bytes in the unit that a person would use."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(len(units) - 1, int(math.log(max(count, 1), 1000)))
    return f"{count / 1000**power:.3g} {units[power]}"
