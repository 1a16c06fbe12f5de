"""Decides when a training has gone wrong, where it rolls back to, and how often it may."""

from __future__ import annotations

import math

import tensorflow as tf
import tf_keras

from pipeline_config.training_schema import TrainingConfig
from pipeline_store.formats import Rollback
from trained_models.errors import NonFiniteLossError
from trained_models.state import TrainingState

# Weight of the newest loop in the running mean of losses.
SMOOTHING = 0.1


class Guard:
    """A judge of each loop of steps by its loss and gradient norm.

    It depends only on checkpoints and on the loop itself, so a resumed training is judged like an
    uninterrupted one.
    """

    def __init__(self, settings: TrainingConfig) -> None:
        self._settings = settings

    def problem(self, loss: float, gradient_norm: float, running_loss: float | None) -> str | None:
        """Return the problem of a loop of steps, or None if there is none.

        :param loss: mean over the loop.
        :param gradient_norm: sum over the loop; it is only checked for being finite.
        :param running_loss: running mean of the losses before the loop.
        """
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            return f"loss {loss} or gradient norm {gradient_norm} is not finite"
        limit = self._settings.max_loss_increase
        if limit is None or running_loss is None or loss <= running_loss + limit:
            return None
        return (
            f"loss {loss:.4f} is more than training.max_loss_increase={limit} above the running "
            f"mean {running_loss:.4f}"
        )

    def running_loss(self, before: float | None, loss: float) -> float:
        """Return the running mean after a good loop of steps."""
        return loss if before is None else before + SMOOTHING * (loss - before)

    def target(self, bad: TrainingState, reason: str) -> int:
        """Return the step to roll back to: a multiple of the checkpoint interval, or 0, the start.

        A checkpoint that SIGTERM saved in between is no target: an uninterrupted training would not
        have it.

        :param bad: state after the loop that went wrong.
        :raises NonFiniteLossError: training has rolled back too often already.
        """
        if len(bad.rollbacks) >= self._settings.max_rollbacks:
            raise NonFiniteLossError(
                f"{reason} in the steps up to {bad.step}; nothing of them is saved, and "
                f"{_history(bad.rollbacks)}, which is all that training.max_rollbacks="
                f"{self._settings.max_rollbacks} allows. Lower optimizer.learning_rate or "
                "optimizer.clip_norm, or raise optimizer.warmup_steps; then start a new run."
            )
        interval = self._settings.checkpoint_interval
        return (bad.step - 1) // interval * interval


def _history(rollbacks: tuple[Rollback, ...]) -> str:
    if not rollbacks:
        return "training has not gone back before"
    ways = [f"from step {r.from_step} to {r.to_step} ({r.reason})" for r in rollbacks]
    return f"training has gone back {'; '.join(ways)}"


def weights_are_finite(model: tf_keras.Model) -> bool:
    """Return whether every weight is a number: the last update of a loop shows in no loss yet."""
    return bool(_all_finite(tuple(model.variables)))


@tf.function
def _all_finite(variables: tuple[tf.Variable, ...]) -> tf.Tensor:
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(variable)) for variable in variables])
