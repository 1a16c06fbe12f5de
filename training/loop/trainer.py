"""The training loop: restore, run loops of steps, judge, report, save, until all steps are done."""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import (
    CheckpointManifest,
    PhaseName,
    Rollback,
    TrainingInputs,
    TrainingResult,
)
from pipeline_store.layout import TrainingLayout
from trained_models import artifacts, heritage
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.errors import JobError, PreemptedError
from trained_models.phases import phase_of, phases
from trained_models.state import TrainingState
from training.architectures.models import weights_sha256
from training.loop.guard import Guard, weights_are_finite
from training.loop.objective import Objective
from training.loop.saver import Saver
from training.model import checkpoints
from training.model.dropout import make_dropout_stateless
from training.optimization.schedules import build_schedule
from training.reporting.progress import LoopReport, Reporter
from training.runtime.job import StopRequest
from training.runtime.phases import begins, looped, phase, went_back
from training.runtime.profiling import Profiler, StepRange
from training.runtime.strategies import (
    checkpoint_options,
    create_strategy,
    is_chief,
    numbers_of_workers,
)

log = logging.getLogger("training")


@dataclass(frozen=True)
class TrainingJob:
    """The inputs of a training; :mod:`training.train` puts them together.

    ``config`` is the effective one: :func:`trained_models.updates.effective_config`.
    """

    config: PipelineConfig
    layout: TrainingLayout
    guard: CommitGuard
    objective: Objective[Any]
    inputs: TrainingInputs
    checkpoint_store: CheckpointStore
    profile: StepRange | None = None


class Trainer:
    """A model in training.

    The constructor builds model and optimizer; :meth:`train` trains them up to ``train_steps`` from
    the newest good checkpoint. State is in three places, saved and restored together: the model's
    variables, the optimizer's (its ``iterations`` is the step) and ``_state``.

    On several machines each one runs this, and all make the same decisions, as all see the same
    sums; only the chief writes.
    """

    def __init__(self, job: TrainingJob, strategy: tf.distribute.Strategy) -> None:
        self._job = job
        self._settings = job.config.training
        self._strategy = strategy
        self._is_chief = is_chief(self._strategy)
        self._files = checkpoint_options(self._strategy)
        self._objective = job.objective
        self.model, self._optimizer = self._build()
        make_dropout_stateless(self.model, self._settings.random_seed, self._optimizer.iterations)
        self._run_steps = self._objective.make_loop(strategy, self.model, self._optimizer)
        self._batches = self._objective.batches(strategy)
        self._score = self._objective.scorer(strategy, self.model)
        self._schedule = build_schedule(job.config)
        self._guard = Guard(self._settings)
        self._saver = Saver(job.checkpoint_store)
        self._profiler = Profiler(job.profile, job.layout.events)
        self._inputs = job.inputs
        self._state = TrainingState()
        self._saved_step = 0
        self._compiled: set[int] = set()

    def _build(self) -> tuple[tf_keras.Model, tf_keras.optimizers.legacy.Optimizer]:
        with self._strategy.scope():
            model = self._objective.build_model()
            return model, self._objective.build_optimizer(model)

    def train(self, stop: StopRequest) -> TrainingResult:
        """Train to the end and commit the result.

        :param stop: checked between loops; when it is set, the state is saved before training ends.
        :raises PreemptedError: a stop was requested; a checkpoint is saved.
        :raises NonFiniteLossError: training has gone wrong more often than it may roll back.
        :raises LostHolderError: another attempt holds the run.
        """
        self._job.guard.check()
        self._start()
        self._reporter = self._make_reporter()
        log.info("Tracing and compiling the loop of steps; on a TPU this can take minutes.")
        with self._profiler, self._reporter, self._saver, phase(PhaseName.LOOP):
            self._profiler.at(self._state.step)
            while self._goes_on():
                if any(numbers_of_workers(self._strategy, stop.requested)):
                    self._give_up()
                self._run_loop()
        return self._finish()

    def _start(self) -> None:
        """Restore the newest good checkpoint, or else load the initial model, if any."""
        with phase(PhaseName.RESTORE):
            manifest = self._job.checkpoint_store.newest()
        if manifest is not None:
            self._resume(manifest)
            log.info("Resuming from checkpoint %d (loss %.4f).", manifest.step, manifest.loss)
        else:
            self._load_init_model()
        steps = numbers_of_workers(self._strategy, self._state.step)
        if len(set(steps)) > 1:
            raise JobError(f"The machines found checkpoints of steps {steps}; start all again.")
        self._machines = len(steps)
        begins(self._state.step)

    def _load_init_model(self) -> None:
        with phase(PhaseName.RESTORE):
            initial = self._objective.load_initial(self.model, self._optimizer)
        if initial is None:
            log.info("Starting from random weights.")
        else:
            if self._is_chief:
                # Replaced: an earlier attempt may have begun from another model and saved nothing.
                initial.weights.record(initial.uri).write(self._job.layout.initial_weights)
            log.info("Continuing from %s: %s", initial.uri, initial.weights)
            self._inputs = self._job.inputs.model_copy(update={"heritage": initial.heritage})

    def _make_reporter(self) -> Reporter:
        layout = self._job.layout
        if not self._is_chief:
            # Its reports are the same as the chief's; they are thrown away at the end.
            self._nowhere = tempfile.TemporaryDirectory()
            layout = TrainingLayout(self._nowhere.name)
        return Reporter(self._job.config, layout, self._state.step)

    def _goes_on(self) -> bool:
        """Collect a checkpoint that is committed by now; return whether there are steps left."""
        self._collect(wait=self._is_complete)
        return not self._is_complete

    @property
    def _is_complete(self) -> bool:
        patience, best = self._settings.early_stop_evaluations, self._state.best
        has_lost_patience = patience and best is not None and best.evaluations_since >= patience
        return self._state.step >= self._settings.steps or bool(has_lost_patience)

    def _run_loop(self) -> None:
        before, begin = self._state, time.monotonic()
        steps = _steps_until_stop(before.step, self._job.config, self._profiler.stops)
        shape = phase_of(self._job.config, before.step).first_step
        compiles = shape not in self._compiled
        with phase(PhaseName.FIRST_LOOP) if compiles else nullcontext():
            batches = self._batches.take(before.step, steps, before.skipped)
            metrics = self._run_steps(batches, tf.constant(steps))
            self._advance(steps, metrics, begin)
        self._compiled.add(shape)
        waited = float(metrics.input_wait_seconds)
        looped(steps, time.monotonic() - begin, compiled=compiles, input_wait=waited)
        self._profiler.at(self._state.step)

        loss, gradient_norm = self._state.loss, float(metrics.gradient_norm)
        problem = self._guard.problem(loss, gradient_norm, before.running_loss)
        if problem is None:
            running_loss = self._guard.running_loss(before.running_loss, loss)
            self._state = replace(self._state, running_loss=running_loss)
            self._reporter.loop(self._report(before, metrics))
            if self._is_save_point():
                problem = self._checkpoint()
        if problem is not None:
            self._roll_back(problem)

    def _advance(self, steps: int, metrics: Any, begin: float) -> None:
        self._state = replace(
            self._state,
            **self._objective.loop_scores(metrics)._asdict(),
            step=self._state.step + steps,
            tokens=self._state.tokens + int(metrics.tokens),
            seconds=self._state.seconds + time.monotonic() - begin,
            held_out=None,
        )

    def _report(self, before: TrainingState, metrics: Any) -> LoopReport:
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
            # A loop lies in one phase, so all its steps are alike.
            flops=steps * self._objective.step_flops(before.step),
            seconds=self._state.seconds - before.seconds,
            input_wait_seconds=float(metrics.input_wait_seconds),
        )

    def _is_save_point(self) -> bool:
        step = self._state.step
        return step % self._settings.checkpoint_interval == 0 or step == self._settings.steps

    def _checkpoint(self) -> str | None:
        """Score the model, if checkpoints are scored, and save it; or return why it is bad."""
        if not weights_are_finite(self.model):
            return "a weight is not finite"
        if self._score is not None:
            with phase(PhaseName.EVALUATION):
                score = self._score()
            if not math.isfinite(score.loss):
                return f"held-out loss {score.loss} is not finite"
            self._state = self._state.scored(score)
            self._reporter.held_out(self._state.step, score)
        self._save()
        return None

    def _save(self) -> None:
        """Begin to save the current state; :meth:`_collect` records the outcome."""
        current = self._state
        self._collect(wait=True)
        if self._state is not current:
            return
        self._reporter.publish()
        if self._is_chief:
            self._saver.save(
                lambda folder: checkpoints.write_files(
                    folder, self.model, self._optimizer, self._inputs, self._files
                ),
                current,
            )

    def _collect(self, *, wait: bool) -> None:
        """Record a checkpoint that is committed by now: ours, or another process's of that step."""
        commit = self._saver.collect(wait=wait)
        if commit is None:
            return
        step = commit.manifest.step
        if commit.is_ours:
            self._saved_step = step
        else:
            # The result must describe the weights that are committed, not those of this process.
            log.warning("Checkpoint %d was there already; going on from it.", step)
            if self._machines > 1:
                raise JobError("Only the chief knows of that checkpoint; start all machines again.")
            self._resume(commit.manifest)
        self._reporter.checkpoint(step)

    def _resume(self, manifest: CheckpointManifest) -> None:
        self._restore(manifest)
        resumed_from = (*self._state.resumed_from, manifest.step)
        self._state = replace(self._state, resumed_from=resumed_from)

    def _restore(self, manifest: CheckpointManifest) -> None:
        with phase(PhaseName.RESTORE):
            checkpoints.restore(
                self._job.layout.root, manifest, self.model, self._optimizer, self._files
            )
        files = artifacts.ModelFiles(self._job.layout.root, manifest.prefix, manifest.files)
        kept = {"heritage": heritage.of_model(files)}
        self._inputs = self._job.inputs.model_copy(update=kept)
        self._state = TrainingState.of(manifest)
        self._saved_step = manifest.step

    def _restore_start(self) -> None:
        """Set model, optimizer and state to those at the start of a new run."""
        model, optimizer = self._build()
        ours = [*self.model.variables, *self._optimizer.variables()]
        for variable, initial in zip(ours, [*model.variables, *optimizer.variables()], strict=True):
            variable.assign(initial)
        self._load_init_model()
        self._state = TrainingState()
        self._saved_step = 0

    def _roll_back(self, problem: str) -> None:
        """Roll back to the last scheduled checkpoint and skip the records since then."""
        bad = self._state
        target = self._guard.target(bad, problem)
        self._collect(wait=True)
        if self._state is not bad:
            return
        self._meet()
        with phase(PhaseName.RESTORE):
            manifest = self._job.checkpoint_store.newest(at_most=target)
        if manifest is None:
            self._restore_start()
        else:
            self._restore(manifest)
        rollback = Rollback(from_step=bad.step, to_step=self._state.step, reason=problem)
        if self._is_chief:
            self._job.checkpoint_store.abandon(after=rollback.to_step)
        self._state = replace(
            self._state,
            seconds=bad.seconds,
            resumed_from=bad.resumed_from,
            rollbacks=(*bad.rollbacks, rollback),
        )
        self._reporter.rollback(rollback)
        went_back(rollback.to_step)

    def _meet(self) -> None:
        """Wait for the other machines, so that all of them can read what the chief has saved."""
        numbers_of_workers(self._strategy, 0)

    def _give_up(self) -> NoReturn:
        self._collect(wait=True)
        if self._state.step != self._saved_step:
            self._save()
            self._collect(wait=True)
        self._meet()
        step, last = self._state.step, self._settings.steps
        where = f"stopped at step {step} of {last}, which is saved" if step else "stopped at step 0"
        raise PreemptedError(f"{where}; the same command goes on from there.")

    def _finish(self) -> TrainingResult:
        end, layout = self._state, self._job.layout
        if self._settings.keep_best and end.best is not None and end.best.step != end.step:
            self._meet()
            self._restore(self._job.checkpoint_store.committed(end.best.step))
            log.info("Checkpoint %d is the best: %s.", end.best.step, self._state.held_out)
        chosen = self._state
        if (doubt := self._objective.doubt(chosen.loss)) is not None:
            log.warning("%s", doubt)
        result = TrainingResult(
            train_steps=chosen.step,
            tokens=chosen.tokens,
            final_loss=chosen.loss,
            next_sentence_loss=chosen.next_sentence_loss,
            next_sentence_accuracy=chosen.next_sentence_accuracy,
            checkpoint=layout.checkpoint(chosen.step).removeprefix(uris.join(layout.root, "")),
            weights_sha256=weights_sha256(self.model),
            seconds=round(end.seconds, 3),
            resumed_from=list(end.resumed_from),
            rollbacks=list(end.rollbacks),
            held_out=chosen.held_out,
            stopped_early=end.step < self._settings.steps,
            steps_done=end.step,
        )
        if self._is_chief:
            result = self._commit(result)
        # A machine that left earlier would be missing when a chief that dies here starts again.
        self._meet()
        return result

    def _commit(self, result: TrainingResult) -> TrainingResult:
        self._job.guard.check()
        uri = self._job.layout.result
        if not result.create(uri):
            result = TrainingResult.load(uri)
        self._job.checkpoint_store.sweep()
        return result


def make_strategy(config: PipelineConfig) -> tf.distribute.Strategy:
    """Return a training's strategy; see :func:`training.runtime.strategies.create_strategy`."""
    evaluation = config.evaluation
    scored = [evaluation.global_batch_size] if evaluation.rows_per_checkpoint else []
    trained = [phase.global_batch_size for phase in phases(config)]
    return create_strategy(config, [*trained, *scored])


def _steps_until_stop(step: int, config: PipelineConfig, others: Sequence[int]) -> int:
    """Return the number of steps of the next loop, up to the next multiple or the phase's end.

    It ends at a multiple of ``steps_per_loop`` or ``checkpoint_interval`` instead of having a
    constant length, as a resumed training may start between multiples.

    :param others: steps at which a loop has to end for other reasons.
    """
    training = config.training
    intervals = (training.steps_per_loop, training.checkpoint_interval)
    stops = [(step // interval + 1) * interval for interval in intervals]
    stops += [other for other in others if other > step]
    return min(*stops, phase_of(config, step).end_step) - step
