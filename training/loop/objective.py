"""What a training is about, as the loop sees it: pretraining and fine-tuning are two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import tensorflow as tf
import tf_keras

from trained_models.state import Score
from training.loop.step import Metrics, TrainLoop
from training.model.starts import Initial


class LoopScores(NamedTuple):
    """What a checkpoint says of the loop of steps before it; fields as in its manifest."""

    loss: float
    next_sentence_loss: float | None = None
    next_sentence_accuracy: float | None = None


class Batches(Protocol):
    """The batches of a training."""

    def take(self, step: int, steps: int, skipped: int = 0) -> Iterator[Any]:
        """Return an iterator whose next batches are those of some steps, all of which get taken.

        :param step: the first one.
        :param steps: number of steps.
        :param skipped: steps whose records are passed over: step ``s`` reads what ``s + skipped``
            would without it.
        """


class Objective(Protocol[Metrics]):
    """What is trained, on what, and how it is measured. The loop does everything else.

    ``Metrics`` are what a loop of steps returns.
    """

    def build_model(self) -> tf_keras.Model:
        """Return the model with all its variables, drawn from the seed."""

    def build_optimizer(self, model: tf_keras.Model) -> tf_keras.optimizers.legacy.Optimizer:
        """Return the optimizer with all its slots."""

    def load_initial(
        self, model: tf_keras.Model, optimizer: tf_keras.optimizers.legacy.Optimizer
    ) -> Initial | None:
        """Set the model to what the training begins with; None: random weights, which it has.

        :raises UserError: it does not fit; nothing was changed.
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
        """Return what scores the model as it is when it is called; None: checkpoints are not."""

    def loop_scores(self, metrics: Metrics) -> LoopScores:
        """Return the means over a loop of steps."""

    def step_flops(self, step: int) -> int:
        """Return the model FLOPs of a step, counted from 0, over all replicas together."""

    def doubt(self, loss: float) -> str | None:
        """Return what to say about a training that ended with this loss; None: nothing."""
