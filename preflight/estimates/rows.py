"""The rows that a run will be trained on, as far as that is known before they are counted."""

from __future__ import annotations

import math

from corpus.text.inputs import COMPRESSED_SUFFIXES, match_inputs
from model_registry.production import production
from model_registry.versions import manifests
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest
from pipeline_store.layout import StoreLayout
from trained_models.decided_steps import RowCounts

CHARACTERS_A_TOKEN = 4.7
"""A row of 128 tokens is some 600 characters of text."""
_COMPRESSION = 4
_LOOKED_AT = 100
"""Files whose size is asked for: in a bucket each is a request."""


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
    """Return the rows that a run would be trained on if it began now, of its partition alone.

    Without what earlier runs made of them, which the plan counts.
    """
    return RowCounts(own.training_rows, _replayed(config, own.partition, store))


def rows_by_size(config: PipelineConfig, partition: str, store: StoreLayout) -> RowCounts | None:
    """Return about how many rows the files of a partition make, as if all were full.

    None without files; whoever looks at the input says what is wrong with it.
    """
    characters = text_characters(config, partition, store)
    training = characters * (1 - config.corpus.validation_fraction)
    rows = math.ceil(training / CHARACTERS_A_TOKEN / config.masking.max_seq_length)
    if not rows:
        return None
    copies = config.masking.dupe_factor
    return RowCounts(rows * copies, _replayed(config, partition, store))


def text_characters(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return about how many characters of text the files of a partition hold.

    Of many files the sizes of some are taken for those of all.
    """
    files = match_inputs(config.corpus.input_pattern, partition, store)
    if not files:
        return 0
    some = files[:: math.ceil(len(files) / _LOOKED_AT)]
    packed = (*COMPRESSED_SUFFIXES, ".parquet")
    found = sum(uris.size(uri) * (_COMPRESSION if uri.endswith(packed) else 1) for uri in some)
    return found * len(files) // len(some)


def _replayed(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return the rows of the partitions that the model in use has seen, if any are replayed."""
    lineage = store.lineage(config.model.lineage_id)
    parent = production(lineage) if config.training.replay_fraction else None
    if parent is None:
        return 0
    left_out = {partition, config.evaluation.general_partition}
    seen = {name: uri for name, uri in manifests(lineage, parent).items() if name not in left_out}
    return sum(PartitionManifest.load(uri).training_rows for uri in seen.values())
