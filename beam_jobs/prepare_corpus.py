"""Turns one partition of raw text into masked-LM records, shard by shard.

    python -m beam_jobs.prepare_corpus --config config.json --store /data/store \\
        --partition 2026-01-31 [--input 'corpus/{partition}/*.txt'] [--dry-run] [Beam options]

Records of shards that are done already are not made again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beam_jobs.cli import JobArguments, read_arguments, run_alone, run_cli
from beam_jobs.job.dry_run import list_shards
from beam_jobs.job.options import parse_options
from beam_jobs.job.partition import (
    check_usable,
    combine,
    commit,
    read_shards,
    say_what_it_is,
    tally,
    warn_of_oddities,
)
from beam_jobs.job.start_up import import_beam
from corpus.errors import raise_failures
from corpus.text.inputs import list_inputs, refuse_misread
from corpus.text.lineage_rules import kept_unit, load_manifests
from corpus.text.readable import check_readable
from corpus.tokens.lineage_vocabulary import load_vocabulary, refuse_other
from pipeline_config import PipelineConfig
from pipeline_store.formats import PartitionManifest, ShardManifest, ShardOutcome, Split
from pipeline_store.layout import StoreLayout

if TYPE_CHECKING:
    from beam_jobs.job.running import RemoteJob


@dataclass(frozen=True)
class PreparedPartition:
    """A committed partition manifest, and what this run did for it."""

    manifest: PartitionManifest
    manifest_uri: str
    shards: list[ShardManifest]
    outcomes: list[ShardOutcome]
    kept_sides: int
    remote_job: RemoteJob | None


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
    return prepare_partition(arguments, pipeline_args).manifest


def prepare_partition(
    arguments: JobArguments,
    pipeline_args: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> PreparedPartition:
    """Do the work of :func:`prepare`.

    :param labels: labels of the job on Dataflow.
    """
    # Imported here because they import Beam, after the command has chosen which parts of it.
    from beam_jobs.job.pipeline import PartitionJob
    from beam_jobs.job.running import run_job

    config, store, partition = arguments.config, arguments.store, arguments.partition
    inputs = list_inputs(arguments.pattern, partition, store)
    refuse_misread(inputs, config)
    # Checked before any work is done, as it needs no signatures.
    lineage = store.lineage(config.model.lineage_id)
    kept_unit(config, load_manifests(lineage).values(), partition)
    vocabulary = load_vocabulary(config, store)
    refuse_other(config, store, vocabulary)
    job = PartitionJob(config, store, partition, arguments.pattern, vocabulary.sha256)
    found, remote_job = run_job(job, inputs, pipeline_args, labels or {})
    raise_failures(found.failures)
    shards = read_shards([outcome.manifest_uri for outcome in found.outcomes])
    warn_of_oddities(found.outcomes, shards)
    check_readable([tally(shard) for shard in shards], config.corpus.max_bad_fraction)
    manifest = combine(arguments, vocabulary.sha256, shards, found)
    check_usable(manifest, inputs, config.vocabulary.max_unknown_fraction)
    manifest, manifest_uri = commit(manifest, lineage)
    say_what_it_is(manifest)
    return PreparedPartition(
        manifest, manifest_uri, shards, found.outcomes, found.kept_sides, remote_job
    )


def summarize(prepared: PreparedPartition) -> dict[str, Any]:
    """Return the numbers that the command prints."""
    manifest = prepared.manifest
    reused = sum(outcome.reused for outcome in prepared.outcomes)
    summary: dict[str, Any] = {
        "partition": manifest.partition,
        "documents": manifest.documents,
        "records": _by_split(manifest.records),
        "tokens": _by_split(manifest.tokens),
        "dropped": manifest.dropped,
        "row_fill": _fill(manifest.records, manifest.tokens, manifest.max_seq_length),
    }
    if manifest.extra_max_seq_length is not None:
        summary |= {
            "extra_records": _by_split(manifest.extra_records),
            "extra_tokens": _by_split(manifest.extra_tokens),
            "extra_row_fill": _fill(
                manifest.extra_records, manifest.extra_tokens, manifest.extra_max_seq_length
            ),
        }
    statistics = manifest.statistics
    summary |= {
        "text_tokens": statistics.text_tokens,
        "unknown_share": _share(statistics.unknown_tokens, statistics.text_tokens),
        "masked_share": _masked_share(prepared.shards),
        "split_by": manifest.split_by,
        "kept_sides": prepared.kept_sides,
        "shards_processed": len(prepared.outcomes) - reused,
        "shards_reused": reused,
        "manifest": prepared.manifest_uri,
    }
    if prepared.remote_job is not None:
        summary |= {
            "dataflow_job": prepared.remote_job.job_id,
            "dataflow_link": prepared.remote_job.link,
        }
    return summary


def _by_split(counts: Mapping[Split, int]) -> dict[str, int]:
    return {str(split): counts[split] for split in Split}


def _fill(records: Mapping[Split, int], tokens: Mapping[Split, int], max_seq_length: int) -> float:
    return _share(sum(tokens.values()), sum(records.values()) * max_seq_length)


def _masked_share(shards: Sequence[ShardManifest]) -> float:
    """Return the share of masked tokens in the rows that are masked already."""
    files = [file for shard in shards for file in shard.files if file.masked]
    return _share(sum(f.masked_tokens for f in files), sum(f.tokens for f in files))


def _share(part: int, whole: int) -> float:
    return round(part / max(1, whole), 4)


def main(argv: Sequence[str] | None = None, *, alone: bool = False) -> int:
    """Run the command line; return its exit code.

    :param alone: whether the process does nothing else, so it may leave out parts of Beam.
    """

    def job() -> dict[str, Any]:
        began = time.monotonic()
        options = parse_options(argv)
        arguments = read_arguments(
            config=options.config,
            store=options.store,
            partition=options.partition,
            pattern=options.pattern,
        )
        if options.dry_run:
            return list_shards(arguments)
        if alone:
            import_beam(arguments.config.beam.runner, options.beam)
        prepared = prepare_partition(arguments, options.beam, options.labels)
        # Imported here, as it needs Matplotlib.
        from beam_jobs.report import write_report

        lineage = arguments.store.lineage(arguments.config.model.lineage_id)
        report = write_report(prepared.manifest, prepared.manifest_uri, arguments.store, lineage)
        seconds = round(time.monotonic() - began, 1)
        return summarize(prepared) | {"report": report, "seconds": seconds}

    return run_cli("prepare_corpus", job)


if __name__ == "__main__":
    run_alone(lambda: main(alone=True))
