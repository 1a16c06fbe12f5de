"""Parses ``--profile FIRST:LAST`` and traces those steps for TensorBoard."""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import NamedTuple, Self

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import PhaseName
from trained_models.errors import UserError
from training.runtime.phases import each, phase

log = logging.getLogger("training")


class StepRange(NamedTuple):
    """Steps to trace, counted from 1 as in the log; the last one is included."""

    first: int
    last: int


def step_range(text: str) -> StepRange:
    """Parse ``FIRST:LAST``, for argparse."""
    first, _, last = text.partition(":")
    try:
        return StepRange(int(first), int(last))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not FIRST:LAST, two numbers of steps such as 20:30"
        ) from None


def check_range(steps: StepRange, config: PipelineConfig) -> None:
    """Check that a run has these steps.

    :raises UserError: it does not.
    """
    if not 1 <= steps.first <= steps.last <= config.training.steps:
        raise UserError(
            f"--profile {steps.first}:{steps.last}: the run has the steps 1 to "
            f"{config.training.steps}; give the first and the last step to trace, in order."
        )


class Profiler:
    """A tracer of steps that publishes the trace among the TensorBoard events.

    It is called between loops of steps and used as a context manager: however the training ends, a
    trace that was begun is published.
    """

    def __init__(self, steps: StepRange | None, events_uri: str) -> None:
        self._steps = steps
        self._events_uri = events_uri
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch is not None:
            self._stop()

    @property
    def stops(self) -> tuple[int, ...]:
        """Return after which steps a loop has to end, so that the trace begins and ends there."""
        return () if self._steps is None else (self._steps.first - 1, self._steps.last)

    def at(self, step: int) -> None:
        """Begin or end the trace if this is the step for it.

        :param step: number of completed steps, whose results have all been read.
        """
        if self._steps is None:
            return
        if step >= self._steps.last:
            if self._scratch is None:
                log.warning("Nothing is traced: the steps %d to %d are done already.", *self._steps)
            else:
                self._stop()
            self._steps = None
        elif self._scratch is None and step >= self._steps.first - 1:
            self._start()

    def _start(self) -> None:
        import tensorflow as tf

        self._scratch = tempfile.TemporaryDirectory()
        tf.profiler.experimental.start(self._scratch.name)

    def _stop(self) -> None:
        import tensorflow as tf

        assert self._scratch is not None  # noqa: S101 - only called while there is a trace
        with phase(PhaseName.SAVE):
            tf.profiler.experimental.stop()
            folder = Path(self._scratch.name)
            for path in each(sorted(folder.rglob("*"))):
                if path.is_file():
                    target = uris.join(self._events_uri, path.relative_to(folder).as_posix())
                    uris.upload(str(path), target)
        self._scratch.cleanup()
        self._scratch = None
        log.info("Trace published in %s.", uris.join(self._events_uri, "plugins/profile"))
