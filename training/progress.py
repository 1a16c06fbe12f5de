"""What people see of a running training: log lines, the progress file, TensorBoard."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from pipeline_store import uris
from pipeline_store.formats import Progress

log = logging.getLogger("training")

SECONDS_BETWEEN_LINES = 2.0
# Weight of the newest loop in the running mean of seconds per step.
SMOOTHING = 0.3


class LoopReport(NamedTuple):
    """One loop of steps, as it is reported."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    seconds: float


class Reporter:
    """Reports loops of steps in three places.

    The log is read by people, in the end in the task log of Airflow. The progress file is read by
    the on-VM agent, which puts it into its heartbeat. TensorBoard reads the events.
    """

    def __init__(self, train_steps: int, events_uri: str) -> None:
        self._train_steps = train_steps
        self._writer = tf.summary.create_file_writer(uris.for_library(events_uri))
        self._progress_file = os.environ.get("REPRETRAIN_PROGRESS_FILE")
        self._seconds_per_step: float | None = None
        self._last_line = 0.0
        self._checkpoint_step: int | None = None

    def loop(self, report: LoopReport) -> None:
        """Report one loop of steps."""
        self._write_events(report)
        pace = report.seconds / report.steps
        if self._seconds_per_step is not None:
            pace = SMOOTHING * pace + (1 - SMOOTHING) * self._seconds_per_step
        self._seconds_per_step = pace
        eta = (self._train_steps - report.step) * pace
        rate = report.tokens / report.seconds
        self._write_progress(
            Progress(
                step=report.step,
                train_steps=self._train_steps,
                loss=round(report.loss, 4),
                tokens_per_second=round(rate, 1),
                eta_seconds=round(eta, 1),
                checkpoint_step=self._checkpoint_step,
            )
        )
        now = time.monotonic()
        if now - self._last_line < SECONDS_BETWEEN_LINES and report.step < self._train_steps:
            return
        self._last_line = now
        log.info(
            "step %d/%d  loss %.4f  learning rate %.2e  %s tokens/s  ETA %s",
            report.step,
            self._train_steps,
            report.loss,
            report.learning_rate,
            f"{rate:,.0f}",
            timedelta(seconds=round(eta)),
        )

    def checkpoint(self, step: int) -> None:
        """Report a committed checkpoint."""
        self._checkpoint_step = step
        self._writer.flush()
        log.info("checkpoint %d committed", step)

    def close(self) -> None:
        """Write out what TensorBoard has not seen yet."""
        self._writer.close()

    def _write_events(self, report: LoopReport) -> None:
        with self._writer.as_default(step=report.step):
            tf.summary.scalar("loss", report.loss)
            tf.summary.scalar("learning_rate", report.learning_rate)
            tf.summary.scalar("gradient_norm", report.gradient_norm)
            tf.summary.scalar("tokens_per_second", report.tokens / report.seconds)

    def _write_progress(self, progress: Progress) -> None:
        if self._progress_file is None:
            return
        aside = Path(f"{self._progress_file}.aside")
        aside.write_text(progress.model_dump_json())
        aside.replace(self._progress_file)
