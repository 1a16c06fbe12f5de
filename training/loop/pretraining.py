"""The objective of masked-LM pretraining, with or without next-sentence prediction.

A dry run checks beforehand whether configuration, model and records fit together.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_store.formats import HeldOutScore
from trained_models.architectures.architecture import step_flops
from trained_models.phases import phase_of, phases
from training.architectures.models import build_model, has_next_sentence_head, trained_variables
from training.evaluation.held_out import HeldOut
from training.importing.loading import InitialModel
from training.input.data import TrainingBatches, TrainingData, training_dataset
from training.loop.objective import LoopScores
from training.loop.step import StepMetrics, TrainLoop, make_train_loop
from training.model import checkpoints
from training.model.losses import masked_lm_losses, next_sentence_scores
from training.model.starts import Initial, load_initial
from training.optimization.moments import Moments
from training.optimization.optimizers import build_optimizer

log = logging.getLogger("training")

ROWS = 8


@dataclass(frozen=True)
class Pretraining:
    """The :class:`training.loop.objective.Objective` of masked-LM pretraining.

    ``config`` is the effective one: :func:`trained_models.updates.effective_config`.
    ``held_out`` is None where checkpoints are not scored.
    """

    config: PipelineConfig
    data: TrainingData
    held_out: HeldOut | None
    init_model: InitialModel | None

    def build_model(self) -> tf_keras.Model:
        """Return the model with all its variables."""
        return build_model(self.config)

    def build_optimizer(self, model: tf_keras.Model) -> tf_keras.optimizers.legacy.Optimizer:
        """Return the optimizer with all its slots."""
        return build_optimizer(self.config, trained_variables(model, self.config))

    def load_initial(
        self, model: tf_keras.Model, optimizer: tf_keras.optimizers.legacy.Optimizer
    ) -> Initial | None:
        """Load the weights, and the moments if they are carried over, from ``init_model``."""
        if self.init_model is None:
            return None
        moments = None
        if self.config.optimizer.carry_slots:
            moments = Moments(optimizer, trained_variables(model, self.config))
        return load_initial(model, self.init_model, self.config, moments)

    def make_loop(
        self,
        strategy: tf.distribute.Strategy,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.legacy.Optimizer,
    ) -> TrainLoop[StepMetrics]:
        """Return the compiled loop of steps."""
        return make_train_loop(strategy, model, optimizer, self.config)

    def batches(self, strategy: tf.distribute.Strategy) -> TrainingBatches:
        """Return the batches that the loop takes."""
        return TrainingBatches(self.data, strategy)

    def scorer(
        self, strategy: tf.distribute.Strategy, model: tf_keras.Model
    ) -> Callable[[], HeldOutScore] | None:
        """Return a function that scores the model on held-out rows; None: there are none."""
        return None if self.held_out is None else self.held_out.scorer(strategy, model)

    def loop_scores(self, metrics: StepMetrics) -> LoopScores:
        """Return the means over masked tokens and over pairs."""
        loss = float(metrics.loss_sum) / max(float(metrics.masked_tokens), 1.0)
        pairs = float(metrics.pairs)
        if not pairs:
            return LoopScores(loss)
        return LoopScores(
            loss,
            next_sentence_loss=float(metrics.next_sentence_loss_sum) / pairs,
            next_sentence_accuracy=float(metrics.next_sentence_correct) / pairs,
        )

    def step_flops(self, step: int) -> int:
        """Return the model FLOPs of a step."""
        return step_flops(self.config, phase_of(self.config, step))

    def doubt(self, loss: float) -> str | None:
        """Return a warning if the loss is worse than that of guessing."""
        chance = math.log(self.config.model.vocab_size)
        if loss <= chance:
            return None
        return (
            f"The loss {loss:.4f} is worse than guessing ({chance:.4f}): this training diverged. "
            "Lower optimizer.learning_rate, or raise optimizer.warmup_steps."
        )


def dry_run(job: Pretraining) -> None:
    """Build the model and a batch, score a few of its rows, and log the results; write nothing.

    Runs on any machine: no TPU is needed to check whether model and records fit together.
    """
    model = build_model(job.config)
    if job.init_model is not None:
        log.info("%s: %s", job.init_model, checkpoints.load_weights(model, job.init_model))
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    log.info("model: %s parameters in %d variables", f"{parameters:,}", len(model.variables))

    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    for phase in phases(job.config):
        dataset = training_dataset(job.data, phase, phase.first_step, 0, strategy)
        (batch,) = next(iter(dataset))
        log.info("global batch of the steps from %d on:", phase.first_step + 1)
        for name, value in sorted(batch.items()):
            log.info("  %-22s %-8s %s", name, value.dtype.name, tuple(value.shape))

    few = {name: value[:ROWS] for name, value in batch.items()}
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
