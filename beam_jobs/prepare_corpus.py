"""Turns one partition of raw text into masked-LM records, shard by shard.

    python -m beam_jobs.prepare_corpus --config config.json --store /data/store \\
        --partition 2026-01-31 [--input 'corpus/{partition}/*.txt'] [--dry-run] [Beam options]

Records of shards that are done already are not made again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.cli import JobArguments, read_arguments, run_cli
from beam_jobs.inputs import list_inputs
from beam_jobs.lineage_vocabulary import load_vocabulary
from beam_jobs.options import PrepareCorpusOptions, local_by_default
from beam_jobs.partition import (
    check_readable,
    check_usable,
    combine,
    commit,
    read_shards,
    tally,
    warn_of_oddities,
)
from beam_jobs.pipeline import PartitionJob, run_pipeline
from beam_jobs.shards import find_done, identify
from pipeline_config import PipelineConfig
from pipeline_store.formats import PartitionManifest, ShardOutcome, Split
from pipeline_store.layout import StoreLayout


@dataclass(frozen=True)
class PreparedPartition:
    """A committed partition manifest, and what this run did for it."""

    manifest: PartitionManifest
    manifest_uri: str
    outcomes: list[ShardOutcome]


def prepare(
    config: PipelineConfig,
    store_uri: str,
    partition: str,
    *,
    pattern: str | None = None,
    pipeline_args: Sequence[str] = (),
) -> PartitionManifest:
    """Make sure that a partition's records are in the store; return its manifest.

    :param pattern: instead of ``corpus.input_pattern``.
    :param pipeline_args: Beam options, as on the command line.
    :raises UserError: no input, or no vocabulary that fits.
    :raises BadDataError: too much of the input is unreadable.
    """
    arguments = JobArguments(
        config, StoreLayout(store_uri), partition, pattern or config.corpus.input_pattern
    )
    return prepare_partition(arguments, PipelineOptions(list(pipeline_args))).manifest


def prepare_partition(arguments: JobArguments, options: PipelineOptions) -> PreparedPartition:
    """Do the work of :func:`prepare`."""
    config, store, partition = arguments.config, arguments.store, arguments.partition
    inputs = list_inputs(arguments.pattern, partition, store)
    vocabulary = load_vocabulary(config, store)
    job = PartitionJob(config, store, partition, arguments.pattern, vocabulary, len(inputs))
    outcomes = run_pipeline(job, local_by_default(options))
    shards = read_shards([outcome.manifest_uri for outcome in outcomes])
    warn_of_oddities(outcomes, shards)
    check_readable([tally(shard) for shard in shards], config.corpus.max_bad_fraction)
    manifest = combine(arguments, vocabulary.sha256, shards)
    check_usable(manifest, inputs)
    manifest_uri = commit(manifest, store.lineage(config.model.lineage_id))
    return PreparedPartition(manifest, manifest_uri, outcomes)


def summarize(prepared: PreparedPartition, max_seq_length: int) -> dict[str, Any]:
    """Return the numbers that the command prints."""
    manifest = prepared.manifest
    reused = sum(outcome.reused for outcome in prepared.outcomes)
    places = sum(manifest.records.values()) * max_seq_length
    return {
        "partition": manifest.partition,
        "documents": manifest.documents,
        "records": {str(split): manifest.records[split] for split in Split},
        "tokens": {str(split): manifest.tokens[split] for split in Split},
        "dropped": manifest.dropped,
        "row_fill": round(sum(manifest.tokens.values()) / places, 4),
        "shards_processed": len(prepared.outcomes) - reused,
        "shards_reused": reused,
        "manifest": prepared.manifest_uri,
    }


def list_shards(arguments: JobArguments) -> dict[str, Any]:
    """Return what a run would do, doing none of it."""
    config, store = arguments.config, arguments.store
    inputs = list_inputs(arguments.pattern, arguments.partition, store)
    vocabulary = load_vocabulary(config, store)
    shards = {uri: identify(uri, config, vocabulary.sha256).key for uri in inputs}
    done = {uri: find_done(store, key) is not None for uri, key in shards.items()}
    return {
        "partition": arguments.partition,
        "dry_run": True,
        "shards": {uri: "done" if done[uri] else "to do" for uri in inputs},
        "shards_to_process": sum(not state for state in done.values()),
        "shards_reused": sum(done.values()),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""

    def job() -> dict[str, Any]:
        began = time.monotonic()
        options = PrepareCorpusOptions(list(sys.argv[1:] if argv is None else argv))
        arguments = read_arguments(
            config=options.config,
            store=options.store,
            partition=options.partition,
            pattern=options.input,
        )
        if options.list_only:
            return list_shards(arguments)
        prepared = prepare_partition(arguments, options)
        summary = summarize(prepared, arguments.config.masking.max_seq_length)
        return summary | {"seconds": round(time.monotonic() - began, 1)}

    return run_cli("prepare_corpus", job)


if __name__ == "__main__":
    sys.exit(main())
