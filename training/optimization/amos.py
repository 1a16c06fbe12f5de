"""Amos, an Adam-style optimizer whose weight decay adapts to the model's scale.

Tian and Parikh, "Amos: An Adam-style Optimizer with Adaptive Weight Decay towards Model-Oriented
Scale", arXiv 2210.11693. Neither tf-models nor Keras has it.

Its two statistics are kept per output unit rather than per weight, so that the slots take about
half of Adam's memory. Names in the formulas are the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

# The paper's constants c and d, for the decay of the learning rate and of the update.
_C = 0.25
_D = 0.25
_CLIP = 1.0
_TINY = 2.0**-125


class Amos(tf_keras.optimizers.legacy.Optimizer):
    """Algorithm 1 of the paper with momentum.

    :param learning_rate: the global rate xi, a schedule over ``iterations``; about 0.01.
    :param beta: decay of the mean square of the gradient.
    :param momentum: decay of the momentum; without bias correction, as in the paper.
    :param scale_of: the expected root mean square of a variable's weights (eta).
    :param averaged_axes_of: the axes over which a variable's statistics are averaged.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor],
        *,
        beta: float = 0.999,
        momentum: float = 0.9,
        scale_of: Callable[[tf.Variable], float],
        averaged_axes_of: Callable[[tf.Variable], list[int]],
        name: str = "Amos",
    ) -> None:
        super().__init__(name)
        # Not a Keras hyperparameter: those call a schedule without the step.
        self._schedule = learning_rate
        self._beta = beta
        self._momentum = momentum
        self._scale_of = scale_of
        self._averaged_axes_of = averaged_axes_of

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        for variable in var_list:
            axes = self._averaged_axes_of(variable)
            reduced = [1 if axis in axes else n for axis, n in enumerate(variable.shape)]
            self.add_slot(variable, "v", shape=reduced)
            self.add_slot(variable, "b", shape=reduced)
            self.add_slot(variable, "m")

    @property
    def _statistics_steps(self) -> tf.Tensor:
        """Return the number of steps in the statistics, including the current one."""
        return self.iterations + 1

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None
    ) -> tf.Operation:
        v, b, m = (self.get_slot(var, name) for name in ("v", "b", "m"))
        step = tf.cast(self._statistics_steps, var.dtype)
        xi = tf.cast(self._schedule(self.iterations), var.dtype)
        eta = tf.constant(self._scale_of(var), var.dtype)

        g = tf.clip_by_value(grad, -_CLIP, _CLIP)
        q = tf.reduce_mean(tf.square(g), self._averaged_axes_of(var), keepdims=True)
        new_v = self._beta * v + (1.0 - self._beta) * q
        r = (1.0 - tf.pow(self._beta, step)) / tf.maximum(new_v, _TINY)
        gamma = tf.square(xi) * r * q * tf.math.rsqrt(1.0 + _C * tf.sqrt(xi) * b)
        decay = 1.0 / (1.0 + _D * tf.sqrt(xi * eta) * b)
        delta = (-0.5 * gamma * var - xi * eta * tf.sqrt(r) * g) * decay
        new_m = self._momentum * m + (1.0 - self._momentum) * delta
        return tf.group(
            v.assign(new_v),
            b.assign_add(gamma * (1.0 + b)),
            m.assign(new_m),
            var.assign_add(new_m),
        )

    def get_config(self) -> dict[str, Any]:
        """Return the settings that are plain numbers."""
        return super().get_config() | {"beta": self._beta, "momentum": self._momentum}
