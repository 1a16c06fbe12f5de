"""The learning rate as a function of the step: a linear warm-up, then one of three decays."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig


class LinearWarmupDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear rise to the peak, then a linear decay to the end.

    Step s, from 0, uses ``peak * (s + 1) / warmup_steps`` while s < warmup_steps, so that no step
    is wasted at rate 0. The decay takes the last ``decay_steps`` steps: the first of them still has
    the peak rate, and ``end`` is reached when all steps are done. Between warm-up and decay the
    rate is constant.

    :param decay_steps: None: all steps after the warm-up.
    """

    def __init__(
        self,
        peak: float,
        end: float,
        warmup_steps: int,
        train_steps: int,
        decay_steps: int | None = None,
    ) -> None:
        super().__init__()
        self._peak = peak
        self._end = end
        self._warmup_steps = warmup_steps
        self._train_steps = train_steps
        self._decay_steps = train_steps - warmup_steps if decay_steps is None else decay_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the rate of a step, float32."""
        position = tf.cast(step, tf.float32)
        rising = self._peak * (position + 1.0) / max(self._warmup_steps, 1)
        done = (position - (self._train_steps - self._decay_steps)) / self._decay_steps
        fallen = self._fallen(tf.clip_by_value(done, 0.0, 1.0))
        falling = self._peak + (self._end - self._peak) * fallen
        return tf.where(position < self._warmup_steps, rising, falling)

    def _fallen(self, done: tf.Tensor) -> tf.Tensor:
        """Return the fraction of the decay after this fraction of the decay steps."""
        return done

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal schedule."""
        return {
            "peak": self._peak,
            "end": self._end,
            "warmup_steps": self._warmup_steps,
            "train_steps": self._train_steps,
            "decay_steps": self._decay_steps,
        }


class CosineWarmupDecay(LinearWarmupDecay):
    """Linear rise to the peak, then half a cosine down to the end (arXiv 1608.03983)."""

    def _fallen(self, done: tf.Tensor) -> tf.Tensor:
        return 0.5 * (1.0 - tf.cos(math.pi * done))


def build_schedule(config: PipelineConfig) -> LinearWarmupDecay:
    """Return the learning-rate schedule of a run."""
    settings = config.optimizer
    shape = settings.learning_rate_schedule
    kind = CosineWarmupDecay if shape == "cosine" else LinearWarmupDecay
    return kind(
        settings.learning_rate,
        settings.end_learning_rate,
        settings.warmup_steps,
        config.training.steps,
        settings.decay_steps if shape == "constant_then_linear" else None,
    )
