"""Reports a running training: log, progress file, TensorBoard events, metrics for programs."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from pipeline_config import PipelineConfig
from pipeline_store.formats import PhaseName, Progress, Rollback
from pipeline_store.layout import TrainingLayout
from trained_models import metric_files
from trained_models.flops import available_flops
from trained_models.metric_files import MetricFiles
from trained_models.state import Score
from training.reporting.events import EventFiles
from training.reporting.report import next_sentence_text
from training.runtime.device_memory import device_memory
from training.runtime.phases import phase, write_for_agent

log = logging.getLogger("training")

PROGRESS_FILE = "REPRETRAIN_PROGRESS_FILE"
"""Environment variable that names the file of a job's progress."""

SECONDS_BETWEEN_LINES = 2.0
# Files are published after a hundredth of the time since the start, within these limits: often at
# first, and yet not tens of thousands of files in a week.
SECONDS_BETWEEN_FILES = (30.0, 300.0)
SHARE_BETWEEN_FILES = 0.01
# Weight of the newest loop in the running mean of seconds per step.
SMOOTHING = 0.3


class LoopReport(NamedTuple):
    """One loop of steps, as it is reported; losses and gradient norm are means over the loop.

    ``flops`` are the model FLOPs of its steps, over all replicas together. ``input_wait_seconds``
    are those of ``seconds`` in which a device had nothing to compute.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    flops: int
    seconds: float
    input_wait_seconds: float
    next_sentence_loss: float | None = None
    next_sentence_accuracy: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Return the rate over the loop; padding does not count."""
        return self.tokens / self.seconds

    @property
    def input_wait_fraction(self) -> float:
        """Return the share of the time in which a device waited for its batch."""
        return self.input_wait_seconds / self.seconds


class Reporter:
    """A reporter of a training, with four outputs.

    People read the log, eventually in the task log of Airflow. The on-VM agent reads the progress
    file and puts it into its heartbeat. TensorBoard reads the events, and other programs the
    metrics; both are published together, and at the end of the context.
    """

    def __init__(self, config: PipelineConfig, layout: TrainingLayout, first_step: int) -> None:
        """Start reporting on a process that trains from ``first_step``."""
        self._train_steps = config.training.steps
        self._available_flops = available_flops(config)
        self._events = EventFiles(layout.events)
        self._metrics = MetricFiles(layout.metrics)
        self._metrics.add(
            metric_files.START,
            first_step,
            train_steps=self._train_steps,
            peak_flops_per_second=self._available_flops,
        )
        self._seconds_per_step: float | None = None
        self._first_step_done: datetime | None = None
        self._stepping_seconds = 0.0
        self._begin = self._last_files = time.monotonic()
        self._last_line = self._begin - SECONDS_BETWEEN_LINES
        self._checkpoint_step: int | None = None
        self._held_out_loss: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The last reports say most about why a training failed.
        self.publish()

    def loop(self, report: LoopReport) -> None:
        """Report one loop of steps."""
        scalars = self._scalars(report)
        self._events.add(report.step, scalars)
        self._metrics.add(
            metric_files.LOOP,
            report.step,
            steps=report.steps,
            tokens=report.tokens,
            seconds=report.seconds,
            **scalars,
        )
        self._first_step_done = self._first_step_done or datetime.now(UTC)
        self._stepping_seconds += report.seconds
        eta = self._eta(report)
        self._write_progress(report, eta)
        now = time.monotonic()
        least, most = SECONDS_BETWEEN_FILES
        pause = min(max(least, SHARE_BETWEEN_FILES * (now - self._begin)), most)
        if now - self._last_files >= pause:
            self.publish()
        if now - self._last_line >= SECONDS_BETWEEN_LINES or report.step == self._train_steps:
            self._last_line = now
            self._log(report, scalars, eta)

    def held_out(self, step: int, score: Score) -> None:
        """Report the score of the model after some step on held-out rows."""
        self._held_out_loss = score.loss
        self._events.add(step, {f"held_out_{name}": value for name, value in score.scalars.items()})
        self._metrics.add(metric_files.HELD_OUT, step, **score.counts, **score.scalars)
        log.info("step %d  %s", step, score)

    def rollback(self, rollback: Rollback) -> None:
        """Report that training went back to a checkpoint."""
        steps = rollback.from_step - rollback.to_step
        self._events.add(rollback.from_step, {"rolled_back_steps": steps})
        self._metrics.add(
            metric_files.ROLLBACK,
            rollback.to_step,
            from_step=rollback.from_step,
            reason=rollback.reason,
        )
        log.warning(
            "back from step %d to checkpoint %d: %s",
            rollback.from_step,
            rollback.to_step,
            rollback.reason,
        )

    def checkpoint(self, step: int) -> None:
        """Report a committed checkpoint."""
        self._checkpoint_step = step
        self._metrics.add(metric_files.CHECKPOINT, step)
        self.publish()
        log.info("checkpoint %d committed", step)

    def publish(self) -> None:
        """Publish what was reported since the last call.

        Must also be called before a checkpoint is committed: a process that resumes from it does
        not report the steps before.
        """
        self._last_files = time.monotonic()
        with phase(PhaseName.SAVE):
            self._events.publish()
            self._metrics.publish()

    def _scalars(self, report: LoopReport) -> dict[str, float]:
        """Return the scalars of a loop, which have the same names in TensorBoard and metrics."""
        flops = report.flops / report.seconds
        memory = device_memory()
        values = {
            "loss": report.loss,
            "learning_rate": report.learning_rate,
            "gradient_norm": report.gradient_norm,
            "tokens_per_second": report.tokens_per_second,
            "steps_per_second": report.steps / report.seconds,
            "input_wait_fraction": report.input_wait_fraction,
            "model_tflops_per_second": flops / 1e12,
            "mfu": None if self._available_flops is None else flops / self._available_flops,
            **(memory._asdict() if memory is not None else {}),
            "next_sentence_loss": report.next_sentence_loss,
            "next_sentence_accuracy": report.next_sentence_accuracy,
        }
        return {name: value for name, value in values.items() if value is not None}

    def _eta(self, report: LoopReport) -> float:
        pace = report.seconds / report.steps
        if self._seconds_per_step is not None:
            pace = SMOOTHING * pace + (1 - SMOOTHING) * self._seconds_per_step
        self._seconds_per_step = pace
        return (self._train_steps - report.step) * pace

    def _log(self, report: LoopReport, scalars: dict[str, float], eta: float) -> None:
        log.info(
            "step %d/%d  loss %.4f%s  learning rate %.2e  %s tokens/s  %.3g TFLOP/s%s  "
            "input wait %.1f%%  ETA %s",
            report.step,
            self._train_steps,
            report.loss,
            next_sentence_text(report.next_sentence_loss, report.next_sentence_accuracy),
            report.learning_rate,
            f"{report.tokens_per_second:,.0f}",
            scalars["model_tflops_per_second"],
            f" (MFU {scalars['mfu']:.1%})" if "mfu" in scalars else "",
            100 * report.input_wait_fraction,
            timedelta(seconds=round(eta)),
        )

    def _write_progress(self, report: LoopReport, eta: float) -> None:
        progress = Progress(
            step=report.step,
            train_steps=self._train_steps,
            loss=round(report.loss, 4),
            held_out_loss=None if self._held_out_loss is None else round(self._held_out_loss, 4),
            tokens_per_second=round(report.tokens_per_second, 1),
            eta_seconds=round(eta, 1),
            checkpoint_step=self._checkpoint_step,
            first_step=self._first_step_done,
            stepping_seconds=round(self._stepping_seconds, 3),
        )
        write_for_agent(PROGRESS_FILE, progress)
