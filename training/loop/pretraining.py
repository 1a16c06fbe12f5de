"""Masked-LM pretraining, with or without next sentences, as the training loop sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_store.formats import HeldOutScore
from trained_models.architectures.architecture import step_flops
from trained_models.phases import phase_of
from training.architectures.models import build_model, trained_variables
from training.evaluation.held_out import HeldOut
from training.importing.loading import InitialModel
from training.input.data import TrainingBatches, TrainingData
from training.loop.objective import LoopScores
from training.loop.step import StepMetrics, TrainLoop, make_train_loop
from training.model.starts import Initial, load_initial
from training.optimization.moments import Moments
from training.optimization.optimizers import build_optimizer


@dataclass(frozen=True)
class Pretraining:
    """The :class:`training.loop.objective.Objective` of masked-LM pretraining.

    ``config`` is as it acts in this training: :func:`trained_models.updates.effective_config`.
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
        """Set the model, and moments that are carried, to those of ``init_model``."""
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
        """Return what scores the model on held-out rows; None: there are none."""
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
        """Return a sentence if guessing would have been better."""
        chance = math.log(self.config.model.vocab_size)
        if loss <= chance:
            return None
        return (
            f"The loss {loss:.4f} is worse than guessing ({chance:.4f}): this training diverged. "
            "Lower optimizer.learning_rate, or raise optimizer.warmup_steps."
        )
