"""What people see of a running training: log lines, the progress file, TensorBoard."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from pipeline_store.formats import Progress
from training.events import EventFiles
from training.report import next_sentence_text

log = logging.getLogger("training")

SECONDS_BETWEEN_LINES = 2.0
SECONDS_BETWEEN_EVENT_FILES = 30.0
# Weight of the newest loop in the running mean of seconds per step.
SMOOTHING = 0.3


class LoopReport(NamedTuple):
    """One loop of steps, as it is reported; losses and gradient norm are means over the loop."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    seconds: float
    next_sentence_loss: float | None = None
    next_sentence_accuracy: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Return the rate over the loop."""
        return self.tokens / self.seconds

    @property
    def scalars(self) -> dict[str, float]:
        """Return what TensorBoard shows."""
        values = {
            "loss": self.loss,
            "learning_rate": self.learning_rate,
            "gradient_norm": self.gradient_norm,
            "tokens_per_second": self.tokens_per_second,
            "next_sentence_loss": self.next_sentence_loss,
            "next_sentence_accuracy": self.next_sentence_accuracy,
        }
        return {name: value for name, value in values.items() if value is not None}


class Reporter:
    """Reports loops of steps in three places.

    The log is read by people, in the end in the task log of Airflow. The progress file is read by
    the on-VM agent, which puts it into its heartbeat. TensorBoard reads the events.
    """

    def __init__(self, train_steps: int, events: EventFiles) -> None:
        self._train_steps = train_steps
        self._events = events
        self._progress_file = os.environ.get("REPRETRAIN_PROGRESS_FILE")
        self._seconds_per_step: float | None = None
        self._last_line = self._last_events = time.monotonic() - SECONDS_BETWEEN_LINES
        self._checkpoint_step: int | None = None

    def loop(self, report: LoopReport) -> None:
        """Report one loop of steps."""
        self._events.add(report.step, report.scalars)
        eta = self._eta(report)
        self._write_progress(report, eta)
        now = time.monotonic()
        if now - self._last_events >= SECONDS_BETWEEN_EVENT_FILES:
            self._publish_events()
        if now - self._last_line >= SECONDS_BETWEEN_LINES or report.step == self._train_steps:
            self._last_line = now
            self._log(report, eta)

    def checkpoint(self, step: int) -> None:
        """Report a committed checkpoint."""
        self._checkpoint_step = step
        self._publish_events()
        log.info("checkpoint %d committed", step)

    def _eta(self, report: LoopReport) -> float:
        pace = report.seconds / report.steps
        if self._seconds_per_step is not None:
            pace = SMOOTHING * pace + (1 - SMOOTHING) * self._seconds_per_step
        self._seconds_per_step = pace
        return (self._train_steps - report.step) * pace

    def _publish_events(self) -> None:
        self._last_events = time.monotonic()
        self._events.publish()

    def _log(self, report: LoopReport, eta: float) -> None:
        log.info(
            "step %d/%d  loss %.4f%s  learning rate %.2e  %s tokens/s  ETA %s",
            report.step,
            self._train_steps,
            report.loss,
            next_sentence_text(report.next_sentence_loss, report.next_sentence_accuracy),
            report.learning_rate,
            f"{report.tokens_per_second:,.0f}",
            timedelta(seconds=round(eta)),
        )

    def _write_progress(self, report: LoopReport, eta: float) -> None:
        if self._progress_file is None:
            return
        progress = Progress(
            step=report.step,
            train_steps=self._train_steps,
            loss=round(report.loss, 4),
            tokens_per_second=round(report.tokens_per_second, 1),
            eta_seconds=round(eta, 1),
            checkpoint_step=self._checkpoint_step,
        )
        aside = Path(f"{self._progress_file}.aside")
        aside.write_text(progress.model_dump_json())
        aside.replace(self._progress_file)
