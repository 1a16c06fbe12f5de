"""The training loop: restore, run loops of steps, report, save, until train_steps are done."""

from __future__ import annotations

import logging
import math
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import CheckpointManifest, TrainingInputs, TrainingResult
from pipeline_store.layout import TrainingLayout
from training import checkpoints, data
from training.checkpoint_store import CheckpointStore, TrainingState
from training.commit import CommitGuard
from training.dropout import make_dropout_stateless
from training.errors import NonFiniteLossError, PreemptedError
from training.events import EventFiles
from training.job import StopRequest
from training.masks import Masker
from training.model import (
    build_model,
    has_next_sentence_head,
    trained_variables,
    weights_sha256,
)
from training.optimizers import build_optimizer, build_schedule
from training.progress import LoopReport, Reporter
from training.records import RecordReader
from training.step import (
    StepMetrics,
    make_train_loop,
    masked_lm_losses,
    next_sentence_scores,
)
from training.strategies import create_strategy

log = logging.getLogger("training")

DRY_RUN_ROWS = 8


@dataclass(frozen=True)
class TrainingJob:
    """Everything a training needs to know; :mod:`training.train` puts it together."""

    config: PipelineConfig
    layout: TrainingLayout
    guard: CommitGuard
    reader: RecordReader
    masker: Masker | None
    inputs: TrainingInputs
    checkpoint_store: CheckpointStore
    init_model: str | None


class Trainer:
    """A model in training.

    The constructor builds model and optimizer; :meth:`train` brings them to ``train_steps`` from
    wherever the newest good checkpoint is. State is in three places, saved and restored together:
    the model's variables, the optimizer's (its ``iterations`` is the step) and ``state``.
    """

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._settings = job.config.training
        self._strategy = create_strategy(job.config, self._settings.global_batch_size)
        with self._strategy.scope():
            self.model = build_model(job.config)
            self._optimizer = build_optimizer(job.config, trained_variables(self.model))
        if job.config.model.hidden_dropout_prob or job.config.model.attention_probs_dropout_prob:
            seed, step = self._settings.random_seed, self._optimizer.iterations
            make_dropout_stateless(self.model, seed, step)
        self._schedule = build_schedule(job.config)
        self._state = TrainingState()

    def train(self, stop: StopRequest) -> TrainingResult:
        """Train to the end and commit the result.

        :param stop: asked between loops; when it is set, the state is saved before giving up.
        :raises PreemptedError: it was asked to stop; a checkpoint is saved.
        :raises NonFiniteLossError: loss or gradient is not a number; nothing was saved since.
        :raises LostHolderError: another attempt holds the run.
        """
        self._job.guard.check()
        saved = self._start()
        reporter = Reporter(self._settings.train_steps, EventFiles(self._job.layout.events))
        run_loop = make_train_loop(
            self._strategy, self.model, self._optimizer, self._job.config.optimizer.clip_norm
        )
        batches = iter(
            data.training_dataset(
                self._job.reader,
                self._job.config,
                self._state.step,
                self._strategy,
                self._job.masker,
            )
        )
        log.info("Tracing and compiling the loop of steps; on a TPU this can take minutes.")

        while self._state.step < self._settings.train_steps:
            if stop.requested:
                self._give_up(saved, reporter)
            before, begin = self._state, time.monotonic()
            steps = _steps_until_stop(before.step, self._job.config)
            metrics = run_loop(batches, tf.constant(steps))
            self._advance(steps, metrics, begin)
            reporter.loop(self._report(before, metrics))
            if self._is_save_point():
                saved = self._save(reporter)

        assert saved is not None  # noqa: S101 - the last step is a save point
        return self._finish(saved)

    def _start(self) -> CheckpointManifest | None:
        """Restore the newest good checkpoint, or else load the initial model, if any."""
        manifest = self._job.checkpoint_store.newest()
        if manifest is not None:
            self._restore(manifest)
            log.info("Resuming from checkpoint %d (loss %.4f).", manifest.step, manifest.loss)
        elif self._job.init_model is not None:
            report = checkpoints.load_weights(self.model, self._job.init_model)
            log.info("Continuing from %s: %s", self._job.init_model, report)
        else:
            log.info("Starting from random weights.")
        return manifest

    def _restore(self, manifest: CheckpointManifest) -> None:
        checkpoints.restore(self._job.layout.root, manifest, self.model, self._optimizer)
        self._state = TrainingState(
            step=manifest.step,
            loss=manifest.loss,
            next_sentence_loss=manifest.next_sentence_loss,
            next_sentence_accuracy=manifest.next_sentence_accuracy,
            tokens=manifest.tokens,
            seconds=manifest.seconds,
            resumed_from=(*manifest.resumed_from, manifest.step),
        )

    def _advance(self, steps: int, metrics: StepMetrics, begin: float) -> None:
        loss = float(metrics.loss_sum) / max(float(metrics.masked_tokens), 1.0)
        pairs = float(metrics.pairs)
        self._state = replace(
            self._state,
            step=self._state.step + steps,
            loss=loss,
            next_sentence_loss=float(metrics.next_sentence_loss_sum) / pairs if pairs else None,
            next_sentence_accuracy=float(metrics.next_sentence_correct) / pairs if pairs else None,
            tokens=self._state.tokens + int(metrics.tokens),
            seconds=self._state.seconds + time.monotonic() - begin,
        )
        # The gradient is that of all losses together.
        if not (math.isfinite(loss) and math.isfinite(float(metrics.gradient_norm))):
            raise NonFiniteLossError(
                f"Loss {loss} or gradient norm {float(metrics.gradient_norm)} is not finite in the "
                f"steps up to {self._state.step} of {self._job.layout.root}; nothing of them is "
                "saved. Lower optimizer.learning_rate or optimizer.clip_norm, or raise "
                "optimizer.warmup_steps; then start a new run."
            )

    def _report(self, before: TrainingState, metrics: StepMetrics) -> LoopReport:
        steps = self._state.step - before.step
        return LoopReport(
            step=self._state.step,
            steps=steps,
            loss=self._state.loss,
            next_sentence_loss=self._state.next_sentence_loss,
            next_sentence_accuracy=self._state.next_sentence_accuracy,
            learning_rate=float(self._schedule(self._state.step - 1)),
            gradient_norm=float(metrics.gradient_norm) / steps,
            tokens=self._state.tokens - before.tokens,
            seconds=self._state.seconds - before.seconds,
        )

    def _is_save_point(self) -> bool:
        step = self._state.step
        return step % self._settings.checkpoint_interval == 0 or step == self._settings.train_steps

    def _save(self, reporter: Reporter) -> CheckpointManifest:
        with tempfile.TemporaryDirectory() as scratch:
            files = checkpoints.write_files(
                Path(scratch), self.model, self._optimizer, self._job.inputs
            )
            manifest, is_ours = self._job.checkpoint_store.commit(files, self._state)
        if not is_ours:
            # The result must describe the weights that are committed, not those of this process.
            log.warning("Checkpoint %d was there already; going on from it.", manifest.step)
            self._restore(manifest)
        reporter.checkpoint(manifest.step)
        return manifest

    def _give_up(self, saved: CheckpointManifest | None, reporter: Reporter) -> NoReturn:
        if self._state.step and (saved is None or saved.step < self._state.step):
            self._save(reporter)
        raise PreemptedError(
            f"stopped at step {self._state.step} of {self._settings.train_steps}, which is saved; "
            "the same command goes on from there."
        )

    def _finish(self, saved: CheckpointManifest) -> TrainingResult:
        layout = self._job.layout
        result = TrainingResult(
            train_steps=self._state.step,
            tokens=self._state.tokens,
            final_loss=self._state.loss,
            next_sentence_loss=self._state.next_sentence_loss,
            next_sentence_accuracy=self._state.next_sentence_accuracy,
            checkpoint=layout.checkpoint(saved.step).removeprefix(uris.join(layout.root, "")),
            weights_sha256=weights_sha256(self.model),
            seconds=round(self._state.seconds, 3),
            resumed_from=list(self._state.resumed_from),
        )
        self._job.guard.check()
        if not result.create(layout.result):
            result = TrainingResult.load(layout.result)
        self._job.checkpoint_store.sweep()
        return result


def _steps_until_stop(step: int, config: PipelineConfig) -> int:
    """Return how many steps the next loop has: up to the next multiple that matters.

    Multiples and not a constant number, as a resumed training may start between them.
    """
    training = config.training
    intervals = (training.steps_per_loop, training.checkpoint_interval)
    stops = [(step // interval + 1) * interval for interval in intervals]
    return min(*stops, training.train_steps) - step


def dry_run(job: TrainingJob) -> None:
    """Build the model and one batch, score a few of its rows, print what was found; write nothing.

    Runs on any machine: no TPU is needed to find out whether model and records fit together.
    """
    model = build_model(job.config)
    if job.init_model is not None:
        log.info("%s: %s", job.init_model, checkpoints.load_weights(model, job.init_model))
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    log.info("model: %s parameters in %d variables", f"{parameters:,}", len(model.variables))
    log.info("records: %s in %d shards", f"{len(job.reader):,}", len(job.inputs.records))

    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    (batch,) = next(iter(data.training_dataset(job.reader, job.config, 0, strategy, job.masker)))
    log.info("global batch:")
    for name, value in sorted(batch.items()):
        log.info("  %-22s %-8s %s", name, value.dtype.name, tuple(value.shape))

    few = {name: value[:DRY_RUN_ROWS] for name, value in batch.items()}
    weights = few["masked_lm_weights"]
    outputs = model(few)
    losses = masked_lm_losses(outputs["mlm_logits"], few["masked_lm_ids"]) * weights
    mean = float(tf.reduce_sum(losses) / tf.maximum(tf.reduce_sum(weights), 1.0))
    uniform = math.log(job.config.model.vocab_size)
    log.info("loss of its first rows: %.4f (guessing all tokens alike: %.4f)", mean, uniform)
    if has_next_sentence_head(model):
        mean = float(tf.reduce_mean(next_sentence_scores(outputs, few).losses))
        log.info("their next-sentence loss: %.4f (guessing: %.4f)", mean, math.log(2))
    log.info("Dry run: nothing was written.")
