"""Runs the pipeline once on the configured engine, and stops it on a signal."""

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
from typing import TypeVar

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineResult

from beam_jobs.job import dataflow
from beam_jobs.job.engines import STOPPED, Engine, is_local, local_engine, processes_for
from beam_jobs.job.pipeline import PartitionJob, run_pipeline
from beam_jobs.job.progress import Pass, ProgressLines, folder_for_progress
from beam_jobs.job.run_folder import run_folder
from pipeline_config.data_schema import BeamConfig
from pipeline_store import uris
from pipeline_store.formats import ShardOutcomes
from pipeline_store.layout import StoreLayout

_SECONDS_BETWEEN_COUNTERS = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteJob:
    """A job that runs on a service, and the URL of its page."""

    job_id: str
    link: str


@dataclass(frozen=True)
class WorkPlace:
    """The place where a job's workers run.

    ``slots``: number of workers that the files are spread over; None leaves it to the engine.
    ``scratch_folder`` and ``progress_folder``: folders on the launcher's machine, for workers that
    run there.
    """

    slots: int | None = None
    scratch_folder: str | None = None
    progress_folder: str | None = None


@dataclass(frozen=True)
class JobRequest:
    """A job to be run, and the options of the engine to run it on.

    ``name``: part of the name of a job on Dataflow. ``inputs``: the input files.
    ``pipeline_args``: Beam's options; they take precedence over the configuration. ``labels``:
    labels of a job on Dataflow. ``first_pass`` and ``unit``: as in :class:`ProgressLines`.
    """

    beam: BeamConfig
    name: str
    store: StoreLayout
    inputs: Sequence[str]
    pipeline_args: Sequence[str]
    labels: Mapping[str, str]
    first_pass: Pass = Pass.SIGN
    unit: str = "documents"


Result = TypeVar("Result")
Submitted = Callable[[PipelineResult], None]
Run = Callable[[Engine, WorkPlace, Submitted], Result]


def run_job(
    job: PartitionJob,
    inputs: Sequence[str],
    pipeline_args: Sequence[str],
    labels: Mapping[str, str],
) -> tuple[ShardOutcomes, RemoteJob | None]:
    """Run the pipeline over a partition; return the shards' outcomes, and the service's job if any.

    :param inputs: the partition's files.
    :raises UserError: the job could not run on the requested engine.
    """

    def run(engine: Engine, place: WorkPlace, submitted: Submitted) -> ShardOutcomes:
        here = replace(
            job,
            slots=place.slots,
            scratch_folder=place.scratch_folder,
            progress_folder=place.progress_folder,
        )
        return run_pipeline(here, engine, submitted)

    beam = job.config.beam
    return launch(JobRequest(beam, job.partition, job.store, inputs, pipeline_args, labels), run)


def launch(request: JobRequest, run: Run[Result]) -> tuple[Result, RemoteJob | None]:
    """Run a pipeline on the requested engine; return its result, and the service's job if any.

    :param run: runs the pipeline to its end; calls its last argument once the engine accepted it.
    :raises UserError: the job could not run on the requested engine.
    """
    options = _options(request)
    if is_local(options):
        return _run_here(request, options, run), None
    return _run_elsewhere(options, run)


def _options(request: JobRequest) -> PipelineOptions:
    given = PipelineOptions(list(request.pipeline_args))
    runner = given.view_as(StandardOptions).runner or request.beam.runner
    if runner != dataflow.RUNNER:
        return given
    flags = dataflow.dataflow_flags(request.beam, request.name, request.labels)
    options = PipelineOptions([*flags, *request.pipeline_args])
    cloud = options.view_as(GoogleCloudOptions)
    cloud.project = cloud.project or dataflow.default_project()
    dataflow.check_places(options, request.store)
    return options


def _run_here(request: JobRequest, options: PipelineOptions, run: Run[Result]) -> Result:
    inputs = request.inputs
    sizes = [uris.size(uri) for uri in inputs]
    processes = processes_for(inputs, sizes, request.beam.max_num_workers)
    with run_folder() as folder:
        engine = local_engine(options, folder, processes)
        logger.info("%d files, %.1f MB; %s", len(inputs), sum(sizes) / 1e6, engine.description)
        progress = folder_for_progress(folder)
        place = WorkPlace(engine.slots, str(folder), str(progress))

        def stop() -> bool:
            # The workers end when this process does, as it holds the lock on the folder.
            shutil.rmtree(folder, ignore_errors=True)
            return True

        lines = ProgressLines(
            progress,
            shards=len(inputs),
            size=sum(sizes),
            first_pass=request.first_pass,
            unit=request.unit,
        )
        with when_stopped(stop), lines.running():
            return run(engine, place, lambda result: None)


def _run_elsewhere(options: PipelineOptions, run: Run[Result]) -> tuple[Result, RemoteJob | None]:
    engine = Engine(options)
    remote_jobs: list[RemoteJob] = []

    def submitted(result: PipelineResult) -> None:
        if options.view_as(StandardOptions).runner == dataflow.RUNNER:
            job_id = result.job_id()
            remote_jobs.append(RemoteJob(job_id, dataflow.console_link(options, job_id)))
            logger.info("dataflow job %s %s", job_id, remote_jobs[0].link)

    with when_stopped(engine.cancel), _counters_logged(engine):
        found = run(engine, WorkPlace(), submitted)
    return found, remote_jobs[0] if remote_jobs else None


@contextmanager
def when_stopped(stop: Callable[[], bool]) -> Iterator[None]:
    """Call ``stop`` and end the process on SIGTERM or Ctrl-C while the context lasts.

    The process ends immediately, because on an exception Beam would wait for its workers to finish.

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
    """Log the service's counters every minute, and at the end."""
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
