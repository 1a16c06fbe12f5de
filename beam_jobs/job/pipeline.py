"""The Beam pipeline: sign every input file, decide on duplicates in one place, convert what is new.

inputs -> Sign (a file each) -> Decide (all) -> Convert (a shard each) -> outcomes
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.runners.runner import PipelineResult

from beam_jobs.job.engines import NAMESPACE, Engine, spread
from beam_jobs.job.planning import Plan, make_plan
from beam_jobs.job.progress import Pass, ProgressMeter, announce_plan
from beam_jobs.job.shards import ShardProcessor, ShardWork
from corpus.duplicates.signing import SignedInput, Signer
from corpus.errors import JOB_ERRORS, failure_of, reading
from corpus.rows.conversion import ShardStatistics
from corpus.text.inputs import list_inputs
from corpus.tokens.lineage_vocabulary import load_vocabulary
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import JobFailure, ShardManifest, ShardOutcome, ShardOutcomes
from pipeline_store.layout import StoreLayout


@dataclass(frozen=True)
class PartitionJob:
    """The parameters of a worker.

    The vocabulary is not among them, because the engine stores this with each step of the graph.

    ``slots``: number of workers that the files are spread over; None leaves it to the engine.
    ``scratch_folder`` and ``progress_folder``: folders on the launcher's machine, for workers that
    run there.
    """

    config: PipelineConfig
    store: StoreLayout
    partition: str
    pattern: str
    vocabulary_sha256: str
    slots: int | None = None
    scratch_folder: str | None = None
    progress_folder: str | None = None


def run_pipeline(
    job: PartitionJob,
    engine: Engine,
    submitted: Callable[[PipelineResult], None] = lambda result: None,
) -> ShardOutcomes:
    """Make sure that all of a partition's shards are in the store.

    :param submitted: called as soon as the engine has accepted the pipeline.

    The workers list the inputs themselves, so a job's graph stays small however many there are.
    """
    result_uri = job.store.scratch(uuid.uuid4().hex)
    pipeline = engine.new_pipeline()
    build(pipeline, job, result_uri)
    engine.run(pipeline, submitted)
    outcomes = ShardOutcomes.load(result_uri)
    uris.delete(result_uri)
    return outcomes


def build(pipeline: beam.Pipeline, job: PartitionJob, result_uri: str) -> None:
    """Add the job's steps to a pipeline; the last writes its ShardOutcomes to ``result_uri``."""
    signed = (
        pipeline
        | "Pattern" >> beam.Create([job.pattern])
        | "ListInputs" >> beam.FlatMap(_list_inputs, job).with_output_types(tuple[int, str])
        | "SpreadInputs" >> beam.GroupByKey()
        | "Sign" >> beam.ParDo(SignInputs(job))
    )
    decided = (
        signed | "CollectSigned" >> beam.combiners.ToList() | "Decide" >> beam.FlatMap(_decide, job)
    )
    converted = (
        decided
        | "Work" >> beam.FlatMap(_work, job).with_output_types(tuple[int, ShardWork])
        | "SpreadWork" >> beam.GroupByKey()
        | "Convert" >> beam.ParDo(ConvertShards(job))
    )
    (
        (decided, converted)
        | "AllResults" >> beam.Flatten()
        | "CollectResults" >> beam.combiners.ToList()
        | "HandOver" >> beam.Map(_hand_over, result_uri)
    )


def _list_inputs(pattern: str, job: PartitionJob) -> Iterator[tuple[int, str]]:
    inputs = list_inputs(pattern, job.partition, job.store)
    if job.slots is None:
        yield from enumerate(inputs)
    else:
        yield from spread(inputs, [uris.size(uri) for uri in inputs], job.slots)


class SignInputs(beam.DoFn):
    """Makes sure that the signatures of input files are in the store; yields their SignedInputs."""

    def __init__(self, job: PartitionJob) -> None:
        super().__init__()
        self._job = job

    def setup(self) -> None:
        """Prepare a process."""
        self._signer = Signer(self._job.config, self._job.store)
        self._meter = ProgressMeter(self._job.progress_folder, Pass.SIGN)

    def process(self, group: tuple[int, Iterable[str]]) -> Iterator[Any]:
        """Sign the files of a group; yield SignedInput or JobFailure."""
        for uri in group[1]:
            yield self._sign(uri)

    def _sign(self, uri: str) -> SignedInput | JobFailure:
        try:
            with reading(uri):
                signed = self._signer.sign(
                    uri,
                    lambda documents, size: self._meter.update(
                        uri, documents=documents, bytes=size
                    ),
                )
        except JOB_ERRORS as error:
            return failure_of(error)
        _count("inputs_signed", 1)
        _count("input_bytes", signed.bytes)
        self._meter.finish(uri, bytes=signed.bytes)
        return signed

    def finish_bundle(self) -> None:
        """Show the last counts."""
        self._meter.flush()


def _decide(found: list[SignedInput | JobFailure], job: PartitionJob) -> Iterator[Any]:
    """Yield a Plan, or the failures that prevent one."""
    failures = [item for item in found if isinstance(item, JobFailure)]
    if failures:
        yield from failures
        return
    try:
        plan = make_plan(
            (item for item in found if isinstance(item, SignedInput)),
            config=job.config,
            store=job.store,
            partition=job.partition,
            vocabulary_sha256=job.vocabulary_sha256,
        )
    except JOB_ERRORS as error:
        yield failure_of(error)
        return
    sizes = [work.source.bytes for work in plan.work]
    announce_plan(
        job.progress_folder, shards=len(plan.work), size=sum(sizes), reused=len(plan.done)
    )
    _count("shards_reused", len(plan.done))
    yield plan


def _work(decided: Plan | JobFailure, job: PartitionJob) -> Iterator[tuple[int, ShardWork]]:
    if isinstance(decided, JobFailure):
        return
    if job.slots is None:
        yield from enumerate(decided.work)
    else:
        sizes = [work.source.bytes for work in decided.work]
        yield from spread(decided.work, sizes, job.slots)


class ConvertShards(beam.DoFn):
    """Makes sure that the records of shards are committed; yields their ShardOutcomes."""

    def __init__(self, job: PartitionJob) -> None:
        super().__init__()
        self._job = job

    def setup(self) -> None:
        """Load a tokenizer for each thread of a process: it caches words, so it is not shared."""
        job = self._job
        vocabulary = load_vocabulary(job.config, job.store)
        if vocabulary.sha256 != job.vocabulary_sha256:
            raise RuntimeError("the lineage's vocabulary was replaced while the job ran.")
        self._processor = ShardProcessor(job.config, job.store, vocabulary, job.scratch_folder)
        self._meter = ProgressMeter(job.progress_folder, Pass.CONVERT)

    def process(self, group: tuple[int, Iterable[ShardWork]]) -> Iterator[Any]:
        """Convert the shards of a group; yield ShardOutcome or JobFailure."""
        for work in group[1]:
            yield self._convert(work)

    def _convert(self, work: ShardWork) -> ShardOutcome | JobFailure:
        uri = work.source.uri

        def report(statistics: ShardStatistics, size: int) -> None:
            self._meter.update(
                uri, documents=statistics.documents, tokens=statistics.tokens, bytes=size
            )

        try:
            with reading(uri):
                shard, outcome = self._processor.process(work, report)
        except JOB_ERRORS as error:
            return failure_of(error)
        tokens = sum(file.tokens for file in shard.files)
        self._meter.finish(uri, documents=shard.documents, tokens=tokens, bytes=work.source.bytes)
        _count_shard(shard, outcome)
        return outcome

    def finish_bundle(self) -> None:
        """Show the last counts."""
        self._meter.flush()


def _count_shard(shard: ShardManifest, outcome: ShardOutcome) -> None:
    """Update the counters that a runner's own monitoring shows."""
    _count("shards_reused" if outcome.reused else "shards_processed", 1)
    if outcome.reused:
        return
    _count("documents", shard.documents)
    for file in shard.files:
        _count(f"records_{file.split}_{file.max_seq_length}", file.records)
        _count(f"tokens_{file.split}_{file.max_seq_length}", file.tokens)
    for reason, count in shard.dropped.items():
        _count(f"dropped_{reason}", count)


def _count(name: str, value: int) -> None:
    Metrics.counter(NAMESPACE, name).inc(value)


def _hand_over(results: list[Plan | ShardOutcome | JobFailure], uri: str) -> None:
    plans = [item for item in results if isinstance(item, Plan)]
    outcomes = [item for item in results if isinstance(item, ShardOutcome)]
    for plan in plans:
        outcomes += plan.done
    ShardOutcomes(
        outcomes=sorted(outcomes, key=lambda outcome: outcome.input_uri),
        duplicate_index=next((plan.duplicate_index for plan in plans), None),
        kept_sides=sum(plan.kept_sides for plan in plans),
        split_by=next((plan.split_by for plan in plans), "document"),
        failures=[item for item in results if isinstance(item, JobFailure)],
    ).write(uri)
