"""AdamW and LAMB of tf-models, and Amos, at the rate of a schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling.optimization.lamb import LAMB
from official.modeling.optimization.legacy_adamw import AdamWeightDecay

from pipeline_config import PipelineConfig
from training.architectures.models import architecture_of
from training.optimization.amos import Amos
from training.optimization.moments import CarryingAdamW, CarryingAmos, CarryingLamb
from training.optimization.schedules import build_schedule

# Suffix that MirroredStrategy adds to the name of a variable's copy on a further device.
_REPLICA = re.compile(r"/replica_\d+(?=:\d+$)")


class LayerwiseAdamW(AdamWeightDecay):
    """AdamW of tf-models with a factor on the learning rate of every variable.

    :param factors: by the variable's name; its copies on further replicas have the same one.
    """

    def __init__(self, *, factors: Mapping[str, float], **settings: Any) -> None:
        super().__init__(**settings)
        self._factors = factors

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: dict[Any, Any]
    ) -> tf.Operation:
        key = (var.device, var.dtype.base_dtype)
        factor = self._factors[_REPLICA.sub("", var.name)]
        scaled = apply_state[key] | {"lr_t": apply_state[key]["lr_t"] * factor}
        return super()._resource_apply_dense(grad, var, apply_state | {key: scaled})


def build_optimizer(
    config: PipelineConfig,
    variables: list[tf.Variable],
    factors: Mapping[str, float] | None = None,
    no_weight_decay: Sequence[str] | None = None,
) -> tf_keras.optimizers.legacy.Optimizer:
    """Return the optimizer with its slots built for exactly these variables.

    ``iterations`` is the step counter of the training. With ``optimizer.carry_slots`` the optimizer
    can continue with moments of an earlier training, by
    :class:`training.optimization.moments.Moments`. Slots have to exist before a checkpoint is
    restored, otherwise their values are silently dropped.

    :param factors: learning-rate factors of AdamW, by the variable's name; None: none.
    :param no_weight_decay: regular expressions for the names of variables that do not decay;
        default: those of ``model.architecture``.
    """
    optimizer = _optimizer(config, factors, no_weight_decay)
    optimizer._create_all_weights(variables)
    return optimizer


def _optimizer(
    config: PipelineConfig,
    factors: Mapping[str, float] | None,
    no_weight_decay: Sequence[str] | None,
) -> tf_keras.optimizers.legacy.Optimizer:
    settings, schedule = config.optimizer, build_schedule(config)
    architecture = architecture_of(config.model)
    if settings.type == "amos":
        return (CarryingAmos if settings.carry_slots else Amos)(
            schedule,
            beta=settings.beta_2,
            momentum=settings.beta_1,
            scale_of=architecture.scale,
            averaged_axes_of=architecture.averaged_axes,
        )
    arguments: dict[str, Any] = {
        "learning_rate": schedule,
        "beta_1": settings.beta_1,
        "beta_2": settings.beta_2,
        "epsilon": settings.epsilon,
        "weight_decay_rate": settings.weight_decay_rate,
        "exclude_from_weight_decay": list(no_weight_decay or architecture.no_weight_decay),
    }
    if settings.type == "adamw":
        # The training step clips: that has to follow the sum over replicas.
        arguments["gradient_clip_norm"] = 0.0
        if factors is not None:
            return LayerwiseAdamW(factors=factors, **arguments)
        adamw = CarryingAdamW if settings.carry_slots else AdamWeightDecay
        return adamw(**arguments)
    return (CarryingLamb if settings.carry_slots else LAMB)(**arguments)
