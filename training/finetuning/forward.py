"""Forward passes over a split, on all devices: logits, or mean hidden states of the encoder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from training.finetuning.task_data import Examples
from training.model.forward import make_forward, mean_state

Forward = Callable[[Examples], npt.NDArray[np.float32]]


def logits_of(model: tf_keras.Model, strategy: tf.distribute.Strategy, batch_size: int) -> Forward:
    """Return a function from examples to a model's logits, float32 [N, L]."""
    forward = make_forward(lambda batch: model(batch, training=False), strategy, batch_size)
    return lambda examples: forward(examples.inputs)


def mean_hidden_states(
    encoder: tf_keras.Model, strategy: tf.distribute.Strategy, batch_size: int
) -> Forward:
    """Return a function from examples to the mean state of their real tokens, float32 [N, H]."""
    forward = make_forward(lambda batch: mean_state(encoder, batch), strategy, batch_size)
    return lambda examples: forward(examples.inputs)
