"""Estimates sizes: rows to train on, bytes of records and of checkpoints."""

from __future__ import annotations

import math

from corpus.text.inputs import COMPRESSED_SUFFIXES, match_inputs
from model_registry.production import production
from model_registry.versions import manifests
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest
from pipeline_store.layout import StoreLayout
from trained_models.architectures.architecture import weights
from trained_models.decided_steps import RowCounts
from trained_models.text_to_text.sizes import Sizes
from trained_models.text_to_text.weights import weights as text_weights

# A row of 128 tokens is about 600 characters of text and 800 bytes of record.
_RECORD_BYTES_PER_CHARACTER = 2
FLOAT_BYTES = 4
CHARACTERS_A_TOKEN = 4.7
"""A row of 128 tokens is about 600 characters of text."""
_COMPRESSION = 4
_LOOKED_AT = 100
"""Maximum number of files whose size is read: in a bucket each takes a request."""


def checkpoint_bytes(config: PipelineConfig) -> int:
    """Return the size of a checkpoint: the weights and the optimizer's slots."""
    copies = 2 if config.optimizer.type == "amos" else 3
    return copies * model_bytes(config)


def text_checkpoint_bytes(sizes: Sizes) -> int:
    """Return the size of a T5's checkpoint, which has AdamW's slots."""
    return 3 * FLOAT_BYTES * sum(math.prod(weight.shape) for weight in text_weights(sizes))


def model_bytes(config: PipelineConfig) -> int:
    """Return the size of the weights alone."""
    return weight_count(config) * FLOAT_BYTES


def weight_count(config: PipelineConfig) -> int:
    """Return the number of the model's weights, including masked-LM head and pooler, if any."""
    return sum(math.prod(weight.shape) for weight in weights(config.model, next_sentence=False))


def record_bytes(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return about how many bytes of records a partition's files become, from their sizes."""
    characters = text_characters(config, partition, store)
    lengths = 1 if config.masking.extra_max_seq_length is None else 2
    return characters * _RECORD_BYTES_PER_CHARACTER * config.masking.dupe_factor * lengths


def size_text(count: float) -> str:
    """Return a number of bytes in a readable unit."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(len(units) - 1, int(math.log(max(count, 1), 1000)))
    return f"{count / 1000**power:.3g} {units[power]}"


def prepared(
    config: PipelineConfig, partition: str, store: StoreLayout
) -> PartitionManifest | None:
    """Return the newest manifest of a partition that was made with the run's data settings."""
    folder = store.lineage(config.model.lineage_id).manifests(partition)
    files = [file for file in uris.list_details(folder) if file.uri.endswith(".json")]
    for file in sorted(files, key=lambda file: file.modified, reverse=True):
        manifest = PartitionManifest.load(file.uri)
        if manifest.config_sha256 == config.data_sha256:
            return manifest
    return None


def row_counts(config: PipelineConfig, own: PartitionManifest, store: StoreLayout) -> RowCounts:
    """Return the rows that a run would train on if it began now, of its own partition only.

    Passes of earlier runs over them are not included; the plan counts those.
    """
    return RowCounts(own.training_rows, _replayed(config, own.partition, store))


def rows_by_size(config: PipelineConfig, partition: str, store: StoreLayout) -> RowCounts | None:
    """Return about how many rows a partition's files become, assuming full rows.

    None without files; the check of the input reports what is wrong with it.
    """
    characters = text_characters(config, partition, store)
    training = characters * (1 - config.corpus.validation_fraction)
    rows = math.ceil(training / CHARACTERS_A_TOKEN / config.masking.max_seq_length)
    if not rows:
        return None
    copies = config.masking.dupe_factor
    return RowCounts(rows * copies, _replayed(config, partition, store))


def text_characters(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return about how many characters of text a partition's files contain.

    For many files the total is extrapolated from the sizes of some.
    """
    files = match_inputs(config.corpus.input_pattern, partition, store)
    if not files:
        return 0
    some = files[:: math.ceil(len(files) / _LOOKED_AT)]
    packed = (*COMPRESSED_SUFFIXES, ".parquet")
    found = sum(uris.size(uri) * (_COMPRESSION if uri.endswith(packed) else 1) for uri in some)
    return found * len(files) // len(some)


def _replayed(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return the number of rows that can be replayed: those that the model in use has seen."""
    lineage = store.lineage(config.model.lineage_id)
    parent = production(lineage) if config.training.replay_fraction else None
    if parent is None:
        return 0
    left_out = {partition, config.evaluation.general_partition}
    seen = {name: uri for name, uri in manifests(lineage, parent).items() if name not in left_out}
    return sum(PartitionManifest.load(uri).training_rows for uri in seen.values())
