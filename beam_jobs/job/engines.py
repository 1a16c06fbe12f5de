"""The engines that run a pipeline: in this process, in local worker processes, or remotely."""

from __future__ import annotations

import heapq
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from beam_jobs.job.start_up import LOCAL_RUNNER

Item = TypeVar("Item")


def spread(items: Sequence[Item], sizes: Sequence[int], slots: int) -> Iterator[tuple[int, Item]]:
    """Yield each item with the number of its slot, the largest items first.

    Each goes to the slot with the least work so far (Graham, "Bounds on multiprocessing timing
    anomalies", 1969): the fullest slot has at most 4/3 of what it has in the best division. Slot
    numbers first appear in ascending order, so that an engine that assigns keys round-robin gives
    each of its workers one.
    """
    loads = [(0, slot) for slot in range(slots)]
    by_size = sorted(range(len(items)), key=lambda number: (-sizes[number], number))
    for number in by_size:
        load, slot = heapq.heappop(loads)
        heapq.heappush(loads, (load + max(1, sizes[number]), slot))
        yield slot, items[number]


# Exit code of a job that a signal stopped, as a shell reports SIGTERM.
STOPPED = 143
# Namespace of the counters that an engine's own monitoring shows.
NAMESPACE = "prepare_corpus"
# Starting worker processes takes about three seconds: Python and Beam's imports once more on every
# core, and gRPC. In that time one core converts this much text.
_BYTES_CONVERTED_MEANWHILE = 35_000_000
# Compressed files hold several times as much text as bytes.
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".parquet")
_COMPRESSION_FACTOR = 3
_REPOSITORY = str(Path(__file__).parents[2])

logger = logging.getLogger(__name__)


@dataclass
class Engine:
    """An engine that is ready to take a pipeline.

    :param runner: Beam's runner; None to make the one that the options name.
    :param slots: number of workers that the engine assigns work to round-robin; None if it
        distributes work itself.
    """

    options: PipelineOptions
    runner: PipelineRunner | None = None
    slots: int | None = None
    description: str = "on another machine"
    _result: PipelineResult | None = field(default=None, init=False)
    _is_cancelled: bool = field(default=False, init=False)

    def new_pipeline(self) -> beam.Pipeline:
        """Return an empty pipeline of this engine."""
        return beam.Pipeline(runner=self.runner, options=self.options)

    def run(
        self,
        pipeline: beam.Pipeline,
        submitted: Callable[[PipelineResult], None] = lambda result: None,
    ) -> None:
        """Run a pipeline to its end.

        :param submitted: called as soon as the engine has accepted it; some have run it by then.
        :raises RuntimeError: the pipeline failed.
        :raises SystemExit: it was cancelled while it was submitted.
        """
        self._result = pipeline.run()
        submitted(self._result)
        if self._is_cancelled:
            self._result.cancel()
            sys.exit(STOPPED)
        state = self._result.wait_until_finish()
        if state != PipelineState.DONE:
            raise RuntimeError(f"the pipeline ended as {state}; its log says why.")

    def cancel(self) -> bool:
        """Cancel the pipeline; return False if it is still being submitted and stops after that."""
        self._is_cancelled = True
        if self._result is None:
            return False
        self._result.cancel()
        return True

    def counters(self) -> dict[str, int]:
        """Return what the engine has counted for this job so far, by name."""
        if self._result is None:
            return {}
        found = self._result.metrics().query()["counters"]
        mine = [counter for counter in found if counter.key.metric.namespace == NAMESPACE]
        return {counter.key.metric.name: counter.result or 0 for counter in mine}


def is_local(options: PipelineOptions) -> bool:
    """Return whether the options ask for the engine of this machine.

    ``DirectRunner`` is taken to mean that as well.
    """
    runner = options.view_as(StandardOptions).runner
    if runner == "DirectRunner":
        logger.info("DirectRunner may download another engine; %s is used", LOCAL_RUNNER)
    return runner in (None, "DirectRunner", LOCAL_RUNNER)


def local_engine(options: PipelineOptions, run_folder: Path, processes: int) -> Engine:
    """Return the engine of this machine.

    Beam's own options for running mode and workers take precedence.

    :param run_folder: the folder of this run; worker processes end when its owner does.
    :param processes: number of worker processes; 1: none besides this process.
    """
    options.view_as(StandardOptions).runner = LOCAL_RUNNER
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        threads = direct.direct_num_workers or _cores()
        return Engine(options, slots=threads, description=f"in {threads} threads")
    if direct.direct_running_mode == "multi_processing":
        processes = direct.direct_num_workers or _cores()
    # Beam's own worker processes would outlive this one.
    direct.direct_running_mode = "in_memory"
    direct.direct_num_workers = processes
    if processes == 1:
        return Engine(options, FnApiRunner(), slots=1, description="in this process")
    logging.getLogger("apache_beam.runners.portability.fn_api_runner.fn_runner").addFilter(
        _is_worth_knowing
    )
    environment = SubprocessSDKEnvironment.from_command_string(_worker_command(run_folder))
    description = f"in {processes} worker processes"
    return Engine(options, FnApiRunner(environment), slots=processes, description=description)


def processes_for(uris: Sequence[str], sizes: Sequence[int], max_num_workers: int) -> int:
    """Return how many worker processes a local run is worth; 1: none besides this process.

    One per core, at most one per file; but none unless the busiest of them is spared more text
    than one core converts while they start.

    :param sizes: bytes of the input files.
    :param max_num_workers: ``beam.max_num_workers``; 0 for one per core.
    """
    cores = max_num_workers or _cores()
    texts = [
        size * (_COMPRESSION_FACTOR if uri.lower().endswith(_COMPRESSED) else 1)
        for uri, size in zip(uris, sizes, strict=True)
    ]
    workers = min(cores, len(texts))
    loads = [0] * max(1, workers)
    for slot, size in spread(texts, texts, len(loads)):
        loads[slot] += size
    return workers if sum(loads) - max(loads) > _BYTES_CONVERTED_MEANWHILE else 1


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _worker_command(run_folder: Path) -> str:
    # Beam passes this to a shell; `exec` replaces that shell by the worker.
    path = os.pathsep.join(filter(None, (_REPOSITORY, os.environ.get("PYTHONPATH"))))
    words = [f"PYTHONPATH={path}", sys.executable, "-m", "beam_jobs.job.worker_process", run_folder]
    return f"exec env {_quoted(words)}"


def _quoted(words: Iterable[object]) -> str:
    return " ".join(shlex.quote(str(word)) for word in words)


def _is_worth_knowing(record: logging.LogRecord) -> bool:
    """Return False for Beam's advice to set a running mode: it would start other processes."""
    return not str(record.msg).startswith("If direct_num_workers is not equal to 1")
