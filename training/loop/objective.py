"""The interface between the training loop and an objective such as pretraining or fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import tensorflow as tf
import tf_keras

from trained_models.state import Score
from training.loop.step import Metrics, TrainLoop
from training.model.starts import Initial


class LoopScores(NamedTuple):
    """Scores of the loop of steps before a checkpoint; fields as in the checkpoint's manifest."""

    loss: float
    next_sentence_loss: float | None = None
    next_sentence_accuracy: float | None = None


class Batches(Protocol):
    """The batches of a training."""

    def take(self, step: int, steps: int, skipped: int = 0) -> Iterator[Any]:
        """Return an iterator whose next batches are those of the given steps.

        The caller takes all of them.

        :param step: the first step.
        :param steps: number of steps.
        :param skipped: steps whose records are skipped: step ``s`` reads the records that step
            ``s + skipped`` would read otherwise.
        """


class Objective(Protocol[Metrics]):
    """A model to train, its data and its measurements. The loop does everything else.

    ``Metrics`` is the type that a loop of steps returns.
    """

    def build_model(self) -> tf_keras.Model:
        """Return the model with all its variables, drawn from the seed."""

    def build_optimizer(self, model: tf_keras.Model) -> tf_keras.optimizers.legacy.Optimizer:
        """Return the optimizer with all its slots."""

    def load_initial(
        self, model: tf_keras.Model, optimizer: tf_keras.optimizers.legacy.Optimizer
    ) -> Initial | None:
        """Load the weights that the training starts from; None: it starts from random weights.

        :raises UserError: they do not fit; nothing was changed.
        """

    def make_loop(
        self,
        strategy: tf.distribute.Strategy,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.legacy.Optimizer,
    ) -> TrainLoop[Metrics]:
        """Return the compiled loop of steps."""

    def batches(self, strategy: tf.distribute.Strategy) -> Batches:
        """Return the batches that the loop takes."""

    def scorer(
        self, strategy: tf.distribute.Strategy, model: tf_keras.Model
    ) -> Callable[[], Score] | None:
        """Return a function that scores the current model; None: checkpoints are not scored."""

    def loop_scores(self, metrics: Metrics) -> LoopScores:
        """Return the means over a loop of steps."""

    def step_flops(self, step: int) -> int:
        """Return the model FLOPs of a step, summed over all replicas; steps count from 0."""

    def doubt(self, loss: float) -> str | None:
        """Return a warning about a training that ended with this loss; None: there is none."""
