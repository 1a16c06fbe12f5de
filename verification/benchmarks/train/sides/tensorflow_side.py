"""Shared code of the TensorFlow sides: threads, versions, and reading a trace."""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from pipeline_config import PipelineConfig
from verification.benchmarks.train.settings import settings

_PICOSECONDS_IN_MS = 1e9
# A traced operation is named "name:Type"; C++ functions, such as "ExecutorState::Run", are not.
_OPERATION = re.compile(r"[^:]+:(_*[A-Z]\w*)(#|$)")


def use_threads(options: argparse.Namespace) -> None:
    """Limit TensorFlow's threads; call this before TensorFlow does anything else."""
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)


def config_of(options: argparse.Namespace) -> PipelineConfig:
    """Return the configuration that a side's options describe."""
    return settings(
        options.shape,
        dtype=options.dtype,
        residual_dtype=options.residual_dtype,
        dropout=options.dropout,
    )


def versions(*libraries: str) -> dict[str, str]:
    """Return the versions of the libraries and of TensorFlow."""
    return {name: importlib.metadata.version(name) for name in ("tensorflow", *libraries)}


def traced(run: Callable[[int], Any], steps: int) -> dict[str, float]:
    """Return the milliseconds of a step by type of operation, without operations inside it.

    Several operations run at once on several threads, so the sum may exceed the wall-clock time,
    which is the first entry.
    """
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        begin = time.perf_counter()
        run(steps)
        wall = time.perf_counter() - begin
        tf.profiler.experimental.stop()
        (path,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    found = {name: ms / steps for name, ms in operation_ms(space).items()}
    return {"wall clock of a step": wall * 1e3 / steps} | found


def operation_ms(space: xplane_pb2.XSpace) -> dict[str, float]:
    """Return the milliseconds of a trace by type of operation, without what is nested in it."""
    totals: dict[str, float] = {}
    for plane in space.planes:
        if plane.name != "/host:CPU":
            continue
        names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
        for line in plane.lines:
            events = (
                Event(_operation(names[event.metadata_id]), event.offset_ps, event.duration_ps)
                for event in line.events
            )
            for event, own in own_durations(events):
                if event.name:
                    totals[event.name] = totals.get(event.name, 0.0) + own / _PICOSECONDS_IN_MS
    return totals


class Event(NamedTuple):
    """An event of a thread, in picoseconds. Without a name it is not an operation."""

    name: str
    begin: int
    duration: int


def own_durations(events: Iterable[Event]) -> list[tuple[Event, int]]:
    """Return a thread's events with their picoseconds, without the operations inside them."""
    operations = sorted(
        (event for event in events if event.name), key=lambda event: (event.begin, -event.duration)
    )
    own = [event.duration for event in operations]
    open_ones: list[int] = []
    for number, event in enumerate(operations):
        while open_ones and _end(operations[open_ones[-1]]) <= event.begin:
            open_ones.pop()
        if open_ones:
            own[open_ones[-1]] -= event.duration
        open_ones.append(number)
    return list(zip(operations, own, strict=True))


def _end(event: Event) -> int:
    return event.begin + event.duration


def _operation(name: str) -> str:
    """Return the type of a traced operation, or an empty string for other events."""
    found = _OPERATION.match(name)
    return found[1] if found else ""
