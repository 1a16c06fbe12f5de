"""One run of the pipeline on the engine that the configuration asks for, and how it is stopped."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineResult

from beam_jobs.job import dataflow
from beam_jobs.job.engines import STOPPED, Engine, is_local, local_engine, processes_for
from beam_jobs.job.pipeline import PartitionJob, run_pipeline
from beam_jobs.job.progress import ProgressLines, folder_for_progress
from beam_jobs.job.run_folder import run_folder
from pipeline_store import uris
from pipeline_store.formats import ShardOutcomes

_SECONDS_BETWEEN_COUNTERS = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteJob:
    """A job of a service, and the page on which people can look at it."""

    job_id: str
    link: str


def run_job(
    job: PartitionJob,
    inputs: Sequence[str],
    pipeline_args: Sequence[str],
    labels: Mapping[str, str],
) -> tuple[ShardOutcomes, RemoteJob | None]:
    """Run the pipeline; return what became of the shards, and the job that a service made of it.

    :param inputs: the partition's files.
    :param pipeline_args: Beam's options; they go before those of the configuration.
    :param labels: of a job on Dataflow.
    :raises UserError: the job could not run where it is to run.
    """
    options = _options(job, pipeline_args, labels)
    if is_local(options):
        return _run_here(job, inputs, options), None
    return _run_elsewhere(job, options)


def _options(
    job: PartitionJob, pipeline_args: Sequence[str], labels: Mapping[str, str]
) -> PipelineOptions:
    given = PipelineOptions(list(pipeline_args))
    runner = given.view_as(StandardOptions).runner or job.config.beam.runner
    if runner != dataflow.RUNNER:
        return given
    flags = dataflow.dataflow_flags(job.config, job.partition, labels)
    options = PipelineOptions([*flags, *pipeline_args])
    cloud = options.view_as(GoogleCloudOptions)
    cloud.project = cloud.project or dataflow.default_project()
    dataflow.check_places(options, job.store)
    return options


def _run_here(job: PartitionJob, inputs: Sequence[str], options: PipelineOptions) -> ShardOutcomes:
    sizes = [uris.size(uri) for uri in inputs]
    processes = processes_for(inputs, sizes, job.config.beam.max_num_workers)
    with run_folder() as folder:
        engine = local_engine(options, folder, processes)
        logger.info("%d files, %.1f MB; %s", len(inputs), sum(sizes) / 1e6, engine.description)
        progress = folder_for_progress(folder)
        job = replace(
            job, slots=engine.slots, scratch_folder=str(folder), progress_folder=str(progress)
        )

        def stop() -> bool:
            # The workers end when this process does, as it holds the lock on the folder.
            shutil.rmtree(folder, ignore_errors=True)
            return True

        lines = ProgressLines(progress, shards=len(inputs), size=sum(sizes))
        with when_stopped(stop), lines.running():
            return run_pipeline(job, engine)


def _run_elsewhere(
    job: PartitionJob, options: PipelineOptions
) -> tuple[ShardOutcomes, RemoteJob | None]:
    engine = Engine(options)
    remote_jobs: list[RemoteJob] = []

    def submitted(result: PipelineResult) -> None:
        if options.view_as(StandardOptions).runner == dataflow.RUNNER:
            job_id = result.job_id()
            remote_jobs.append(RemoteJob(job_id, dataflow.console_link(options, job_id)))
            logger.info("dataflow job %s %s", job_id, remote_jobs[0].link)

    with when_stopped(engine.cancel), _counters_logged(engine):
        outcomes = run_pipeline(job, engine, submitted)
    return outcomes, remote_jobs[0] if remote_jobs else None


@contextmanager
def when_stopped(stop: Callable[[], bool]) -> Iterator[None]:
    """Call ``stop`` and end the process on SIGTERM or Ctrl-C, as long as the context lasts.

    At once and not by an exception: Beam would wait for its workers to finish what they do.

    :param stop: returns False if the process ends by itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        logger.warning("stopped by %s; what is done is kept, run again for the rest", name)
        may_end = True
        try:
            may_end = stop()
        finally:
            if may_end:
                os._exit(STOPPED)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _counters_logged(engine: Engine) -> Iterator[None]:
    """Say every minute, and at the end, what a service has counted."""
    ended = threading.Event()

    def say() -> None:
        if counts := engine.counters():
            logger.info("%s", ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items())))

    def work() -> None:
        while not ended.wait(_SECONDS_BETWEEN_COUNTERS):
            say()

    thread = threading.Thread(target=work, daemon=True, name="counters")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    say()
