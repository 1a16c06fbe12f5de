"""The Beam pipeline over a task's files: read each, decide on all, convert each.

files -> Read (a file each) -> Decide (all) -> Convert (a file each) -> outcome
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from beam_jobs.job.engines import Engine, spread
from beam_jobs.job.progress import Pass, ProgressMeter, announce_plan
from beam_jobs.job.running import WorkPlace
from beam_jobs.labelled.conversion import FileWork, Part, TaskVocabulary, plan_work
from beam_jobs.labelled.decisions import decide
from beam_jobs.labelled.facts import DeadLetters, FileFacts, TaskFile, collect_facts
from beam_jobs.labelled.outcome import StoredPart, TaskOutcome
from beam_jobs.labelled.task_examples import Decided
from corpus.errors import JOB_ERRORS, failure_of, reading
from corpus.text.reading import InputChangedError, MeteredStream
from pipeline_config import TaskConfig
from pipeline_store import request_paths, uris
from pipeline_store.formats import JobFailure
from pipeline_store.layout import StoreLayout

LETTERS = "letters-"


@dataclass(frozen=True)
class TaskJob:
    """The parameters of a worker. ``folder``: the folder of this attempt, in the store."""

    store: StoreLayout
    task: TaskConfig
    files: tuple[TaskFile, ...]
    folder: str
    lineage_id: str
    vocabulary_sha256: str
    max_seq_length: int
    place: WorkPlace = field(default_factory=WorkPlace)


def run_pipeline(
    job: TaskJob, engine: Engine, submitted: Callable[[PipelineResult], None]
) -> TaskOutcome:
    """Read, decide and convert; return the outcome."""
    result_uri = uris.join(job.folder, "outcome.json")
    pipeline = engine.new_pipeline()
    build(pipeline, job, result_uri)
    engine.run(pipeline, submitted)
    return TaskOutcome.load(result_uri)


def run_plainly(job: TaskJob) -> TaskOutcome:
    """Run the same steps in this process, one file after the other, without an engine."""
    result_uri = uris.join(job.folder, "outcome.json")
    reader, converter = ReadFiles(job), ConvertFiles(job)
    reader.setup()
    decided = list(_decide(list(reader.process((0, job.files))), job))
    work = [item for found in decided for _, item in _work(found, job)]
    converter.setup()
    _hand_over([*decided, *converter.process((0, work))], result_uri)
    return TaskOutcome.load(result_uri)


def build(pipeline: beam.Pipeline, job: TaskJob, result_uri: str) -> None:
    """Add the job's steps to a pipeline; the last writes its TaskOutcome to ``result_uri``."""
    read = (
        pipeline
        | "Files" >> beam.Create(_spread(job, job.files, [file.bytes for file in job.files]))
        | "SpreadFiles" >> beam.GroupByKey()
        | "Read" >> beam.ParDo(ReadFiles(job))
    )
    decided = (
        read | "CollectRead" >> beam.combiners.ToList() | "Decide" >> beam.FlatMap(_decide, job)
    )
    converted = (
        decided
        | "Work" >> beam.FlatMap(_work, job).with_output_types(tuple[int, FileWork])
        | "SpreadWork" >> beam.GroupByKey()
        | "Convert" >> beam.ParDo(ConvertFiles(job))
    )
    (
        (decided, converted)
        | "AllResults" >> beam.Flatten()
        | "CollectResults" >> beam.combiners.ToList()
        | "HandOver" >> beam.Map(_hand_over, result_uri)
    )


def _spread(job: TaskJob, items: Iterable[Any], sizes: list[int]) -> list[tuple[int, Any]]:
    if job.place.slots is None:
        return list(enumerate(items))
    return list(spread(list(items), sizes, job.place.slots))


@contextmanager
def verified(file: TaskFile) -> Iterator[MeteredStream]:
    """Open an input file.

    :raises InputChangedError: at the end, if the file has changed since it was first read.
    """
    with request_paths.open_stream(file.uri) as stream:
        source = MeteredStream(stream)
        yield source
        if source.finish() != file.sha256:
            raise InputChangedError(file.uri)


class ReadFiles(beam.DoFn):
    """Reads files; yields FileFacts or JobFailure."""

    def __init__(self, job: TaskJob) -> None:
        super().__init__()
        self._job = job

    def setup(self) -> None:
        """Prepare a process."""
        self._meter = ProgressMeter(self._job.place.progress_folder, Pass.READ)

    def process(self, group: tuple[int, Iterable[TaskFile]]) -> Iterator[Any]:
        """Read the files of a group."""
        for file in group[1]:
            try:
                with reading(file.uri):
                    facts = self._read(file)
                yield facts
            except JOB_ERRORS as error:
                yield failure_of(error)

    def _read(self, file: TaskFile) -> FileFacts:
        with tempfile.TemporaryDirectory(
            prefix="task-", dir=self._job.place.scratch_folder
        ) as folder:
            letters = DeadLetters(Path(folder, "letters"))
            with letters, verified(file) as source:
                facts = collect_facts(
                    cast("BinaryIO", source),
                    file,
                    self._job.task,
                    letters,
                    lambda examples: self._meter.update(
                        file.uri, documents=examples, bytes=source.bytes_read
                    ),
                )
            _keep_letters(self._job, letters, f"{file.number:05d}")
        self._meter.finish(file.uri, documents=len(facts), bytes=file.bytes)
        return facts

    def finish_bundle(self) -> None:
        """Show the last counts."""
        self._meter.flush()


def _keep_letters(job: TaskJob, letters: DeadLetters, name: str) -> None:
    if letters.bytes:
        uris.upload(str(letters.path), uris.join(job.folder, f"{LETTERS}{name}.jsonl"))


@dataclass(frozen=True)
class _Plan:
    """The decision, and the files to convert; none if the task is refused."""

    decided: Decided
    work: list[FileWork]


def _decide(found: list[FileFacts | JobFailure], job: TaskJob) -> Iterator[_Plan | JobFailure]:
    failures = [item for item in found if isinstance(item, JobFailure)]
    if failures:
        yield from failures
        return
    facts = sorted(
        (item for item in found if isinstance(item, FileFacts)), key=lambda one: one.file.number
    )
    decided = decide(facts, job.task)
    with tempfile.TemporaryDirectory(prefix="task-") as folder:
        with DeadLetters(Path(folder, "letters")) as letters:
            for file, unusable in decided.letters:
                letters.add(file.split, file.uri, unusable)
        _keep_letters(job, letters, "decided")
    work = [] if decided.refusals else list(plan_work(facts, decided))
    size = sum(one.file.bytes for one in work)
    announce_plan(job.place.progress_folder, shards=len(work), size=size, reused=0)
    yield _Plan(replace(decided, assigned={}, letters=[]), work)


def _work(found: _Plan | JobFailure, job: TaskJob) -> Iterator[tuple[int, FileWork]]:
    if isinstance(found, _Plan):
        yield from _spread(job, found.work, [one.file.bytes for one in found.work])


class ConvertFiles(beam.DoFn):
    """Converts files; yields a TaskOutcome for each, or JobFailure."""

    def __init__(self, job: TaskJob) -> None:
        super().__init__()
        self._job = job

    def setup(self) -> None:
        """Load a tokenizer for each thread of a process: it caches words, so it is not shared."""
        job = self._job
        vocabulary = TaskVocabulary.load(job.store, job.lineage_id, job.max_seq_length)
        if vocabulary.sha256 != job.vocabulary_sha256:
            raise RuntimeError("the lineage's vocabulary was replaced while the job ran.")
        self._converter = vocabulary.converter(job.task)
        self._meter = ProgressMeter(job.place.progress_folder, Pass.CONVERT)

    def process(self, group: tuple[int, Iterable[FileWork]]) -> Iterator[Any]:
        """Convert the files of a group."""
        for work in group[1]:
            try:
                with reading(work.file.uri):
                    outcome = self._convert(work)
                yield outcome
            except JOB_ERRORS as error:
                yield failure_of(error)

    def _convert(self, work: FileWork) -> TaskOutcome:
        uri = work.file.uri
        with tempfile.TemporaryDirectory(
            prefix="task-", dir=self._job.place.scratch_folder
        ) as folder:
            with verified(work.file) as source:
                found = self._converter.convert(
                    cast("BinaryIO", source),
                    work,
                    Path(folder),
                    lambda examples, tokens: self._meter.update(
                        uri, documents=examples, tokens=tokens, bytes=source.bytes_read
                    ),
                )
            parts = [_stored(part, work.file.number, self._job.folder) for part in found.parts]
        self._meter.finish(
            uri,
            documents=sum(part.records for part in parts),
            tokens=sum(part.tokens for part in parts),
            bytes=work.file.bytes,
        )
        return TaskOutcome(parts=parts, label_search=sorted(found.label_search.items()))

    def finish_bundle(self) -> None:
        """Show the last counts."""
        self._meter.flush()


def _stored(part: Part, number: int, folder: str) -> StoredPart:
    base = uris.join(folder, f"{part.split}-{number:05d}")
    names = {name: f"{base}.{name}" for name in ("data", "index", "sources")}
    uris.upload(str(part.records.path), names["data"])
    uris.write(names["index"], part.records.index())
    uris.write(names["sources"], part.source_bytes())
    return StoredPart(
        split=part.split,
        number=number,
        records=part.records.records,
        truncated=part.truncated,
        tokens=part.tokens,
        **names,
    )


def _hand_over(results: list[Any], uri: str) -> None:
    decided = [item.decided for item in results if isinstance(item, _Plan)]
    found = [item for item in results if isinstance(item, TaskOutcome)]
    outcome = TaskOutcome(
        parts=[part for item in found for part in item.parts],
        label_search=[pair for item in found for pair in item.label_search],
        failures=[item for item in results if isinstance(item, JobFailure)],
    )
    for one in decided:
        outcome = outcome.model_copy(
            update={
                "labels": one.labels,
                "label_counts": one.label_counts,
                "refusals": one.refusals,
                "warnings": one.warnings,
                "dropped": dict(sorted(one.dropped.items())),
            }
        )
    outcome.write(uri)
