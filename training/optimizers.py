"""AdamW and LAMB of tf-models, and Amos, with BERT's learning-rate schedule."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling.optimization.lamb import LAMB
from official.modeling.optimization.legacy_adamw import AdamWeightDecay

from pipeline_config import PipelineConfig
from training.amos import Amos, bert_averaged_axes, bert_scale

# As in google-research/bert optimization.py.
NO_WEIGHT_DECAY = ["LayerNorm", "layer_norm", "bias"]


class LinearWarmupDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear rise to the peak, then linear fall.

    Step s, from 0, uses ``peak * (s + 1) / warmup_steps`` while s < warmup_steps, so that no step
    is wasted at rate 0; after that the line from the peak to ``end_learning_rate``, which is
    reached when all steps are done.
    """

    def __init__(self, peak: float, end: float, warmup_steps: int, train_steps: int) -> None:
        super().__init__()
        self._peak = peak
        self._end = end
        self._warmup_steps = warmup_steps
        self._train_steps = train_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the rate of a step, float32."""
        position = tf.cast(step, tf.float32)
        rising = self._peak * (position + 1.0) / max(self._warmup_steps, 1)
        done = (position - self._warmup_steps) / (self._train_steps - self._warmup_steps)
        falling = self._peak + (self._end - self._peak) * tf.clip_by_value(done, 0.0, 1.0)
        return tf.where(position < self._warmup_steps, rising, falling)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal schedule."""
        return {
            "peak": self._peak,
            "end": self._end,
            "warmup_steps": self._warmup_steps,
            "train_steps": self._train_steps,
        }


def build_schedule(config: PipelineConfig) -> LinearWarmupDecay:
    """Return the learning-rate schedule of a run."""
    settings = config.optimizer
    return LinearWarmupDecay(
        settings.learning_rate,
        settings.end_learning_rate,
        settings.warmup_steps,
        config.training.train_steps,
    )


def build_optimizer(
    config: PipelineConfig, variables: list[tf.Variable]
) -> tf_keras.optimizers.legacy.Optimizer:
    """Return the optimizer with its slots built for exactly these variables.

    ``iterations`` is the step counter of the training. Slots have to exist before a checkpoint is
    restored, else their values are dropped without a word.
    """
    optimizer = _optimizer(config)
    optimizer._create_all_weights(variables)
    return optimizer


def _optimizer(config: PipelineConfig) -> tf_keras.optimizers.legacy.Optimizer:
    settings, schedule = config.optimizer, build_schedule(config)
    if settings.type == "amos":
        return Amos(
            schedule,
            beta=settings.beta_2,
            momentum=settings.beta_1,
            scale_of=bert_scale,
            averaged_axes_of=bert_averaged_axes,
        )
    arguments = {
        "learning_rate": schedule,
        "beta_1": settings.beta_1,
        "beta_2": settings.beta_2,
        "epsilon": settings.epsilon,
        "weight_decay_rate": settings.weight_decay_rate,
        "exclude_from_weight_decay": NO_WEIGHT_DECAY,
    }
    if settings.type == "adamw":
        # Clipping is the training step's: it has to follow the sum over replicas.
        return AdamWeightDecay(gradient_clip_norm=0.0, **arguments)
    return LAMB(**arguments)
