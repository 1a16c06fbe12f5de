"""The Beam pipeline: one element per input shard, so any runner spreads the shards as it likes."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.shared import Shared

from beam_jobs.conversion import ShardStatistics
from beam_jobs.inputs import list_inputs
from beam_jobs.progress import ProgressMeter
from beam_jobs.shards import ShardProcessor
from beam_jobs.vocabulary import Vocabulary
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import ShardManifest, ShardOutcome, ShardOutcomes, Split
from pipeline_store.layout import StoreLayout

_NAMESPACE = "prepare_corpus"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionJob:
    """What a worker has to know. ``shards`` is the number of input files, for progress lines."""

    config: PipelineConfig
    store: StoreLayout
    partition: str
    pattern: str
    vocabulary: Vocabulary
    shards: int


class ProcessShard(beam.DoFn):
    """Makes sure that an input file's records are committed; yields where."""

    def __init__(self, job: PartitionJob) -> None:
        super().__init__()
        self._job = job
        self._shared_processor = Shared()
        self._shared_meter = Shared()

    def setup(self) -> None:
        """Load the tokenizer, once per process."""
        job = self._job
        self._processor: ShardProcessor = self._shared_processor.acquire(
            lambda: ShardProcessor(job.config, job.store, job.vocabulary)
        )
        self._meter: ProgressMeter = self._shared_meter.acquire(lambda: ProgressMeter(job.shards))

    def process(self, uri: str) -> Iterator[ShardOutcome]:
        """Process one input file."""

        def report(statistics: ShardStatistics) -> None:
            self._meter.update(uri, statistics)

        shard, outcome = self._processor.process(uri, report)
        self._meter.finish(shard, outcome)
        _count(shard, outcome)
        yield outcome


def _count(shard: ShardManifest, outcome: ShardOutcome) -> None:
    """Update the counters that a runner's own monitoring shows."""

    def add(name: str, value: int) -> None:
        Metrics.counter(_NAMESPACE, name).inc(value)

    add("shards_reused" if outcome.reused else "shards_processed", 1)
    if outcome.reused:
        return
    add("documents", shard.documents)
    for split in Split:
        add(f"records_{split}", shard.files[split].records)
        add(f"tokens_{split}", shard.files[split].tokens)
    for reason, count in shard.dropped.items():
        add(f"dropped_{reason}", count)


def run_pipeline(job: PartitionJob, options: PipelineOptions) -> list[ShardOutcome]:
    """Process a partition's shards; return them in order of their input.

    The workers list the inputs themselves, so a job's graph stays small however many there are.
    """
    result_uri = job.store.scratch(uuid.uuid4().hex)
    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | "Pattern" >> beam.Create([job.pattern])
            | "ListInputs" >> beam.FlatMap(list_inputs, job.partition, job.store)
            | "SpreadOut" >> beam.Reshuffle()
            | "ProcessShard" >> beam.ParDo(ProcessShard(job))
            | "Collect" >> beam.combiners.ToList()
            | "HandOver" >> beam.Map(_hand_over, result_uri)
        )
    outcomes = ShardOutcomes.load(result_uri).outcomes
    uris.delete(result_uri)
    return sorted(outcomes, key=lambda outcome: outcome.input_uri)


def _hand_over(outcomes: list[ShardOutcome], uri: str) -> None:
    ShardOutcomes(outcomes=outcomes).write(uri)
