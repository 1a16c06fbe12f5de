"""Refuses a run of too many or too few steps for its text, where that shows at once."""

from __future__ import annotations

from collections.abc import Iterator

from corpus.text.inputs import match_inputs
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, ShardManifest
from pipeline_store.layout import StoreLayout
from preflight.estimates.auto_steps import decide
from preflight.estimates.rows import prepared
from trained_models.decided_steps import RowCounts
from trained_models.errors import UserError


def passes_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line if the steps go over the partition more often than ``training.max_passes``.

    Also if the partition, or a budget, is too small for the fewest steps of auto. Only what is
    certain: the partition is prepared, and its files are those that it was prepared from. Else the
    plan refuses the run, which counts all rows.
    """
    if config.training.partitions != "own":
        return
    manifest = prepared(config, partition, store)
    if manifest is None or not manifest.training_rows:
        return
    # With something to replay fewer rows of a batch are new: the fewest passes that there can be of
    # so many steps, and the most steps of auto.
    rows = RowCounts(manifest.training_rows, replayed=1)
    try:
        decide(config, rows, store)
    except UserError as error:
        if _is_as_prepared(manifest, config, partition, store):
            yield str(error)


def _is_as_prepared(
    manifest: PartitionManifest, config: PipelineConfig, partition: str, store: StoreLayout
) -> bool:
    """Return whether the files have the names and sizes that they had when they were prepared."""
    shards = [ShardManifest.load(store.resolve(uri)) for uri in manifest.shards]
    before = sorted((shard.input_uri, shard.input_bytes) for shard in shards)
    files = match_inputs(config.corpus.input_pattern, partition, store)
    return sorted((uri, uris.size(uri)) for uri in files) == before
