"""AdamW and LAMB of tf-models, and Amos, at the rate of a schedule."""

from __future__ import annotations

import tensorflow as tf
import tf_keras
from official.modeling.optimization.lamb import LAMB
from official.modeling.optimization.legacy_adamw import AdamWeightDecay

from pipeline_config import PipelineConfig
from training.amos import Amos, bert_averaged_axes, bert_scale
from training.moments import CarryingAdamW, CarryingAmos, CarryingLamb
from training.schedules import build_schedule

# As in google-research/bert optimization.py.
NO_WEIGHT_DECAY = ["LayerNorm", "layer_norm", "bias"]


def build_optimizer(
    config: PipelineConfig, variables: list[tf.Variable]
) -> tf_keras.optimizers.legacy.Optimizer:
    """Return the optimizer with its slots built for exactly these variables.

    ``iterations`` is the step counter of the training. With ``optimizer.carry_slots`` it can go on
    with moments of an earlier one, by :class:`training.moments.Moments`. Slots have to exist before
    a checkpoint is restored, else their values are dropped without a word.
    """
    optimizer = _optimizer(config)
    optimizer._create_all_weights(variables)
    return optimizer


def _optimizer(config: PipelineConfig) -> tf_keras.optimizers.legacy.Optimizer:
    settings, schedule = config.optimizer, build_schedule(config)
    if settings.type == "amos":
        return (CarryingAmos if settings.carry_slots else Amos)(
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
        adamw = CarryingAdamW if settings.carry_slots else AdamWeightDecay
        return adamw(gradient_clip_norm=0.0, **arguments)
    return (CarryingLamb if settings.carry_slots else LAMB)(**arguments)
