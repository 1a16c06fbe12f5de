"""The two functions that are both called "gelu" (arXiv 1606.08415), with their derivatives.

The derivatives are written out from the input alone: nothing else as wide as a feed-forward layer
is kept for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from training.architectures.one_pass import one_pass

Derivative = Callable[[tf.Tensor], tf.Tensor]

_named: ContextVar[bool] = ContextVar("named", default=False)


@contextmanager
def gelu_by_name() -> Iterator[None]:
    """Trace gelu functions as :func:`tf.nn.gelu`, so that a converter recognizes them.

    TensorFlow Lite has an operation for exactly that chain, and none for the error function in it.
    The two forms differ only by rounding.
    """
    token = _named.set(True)
    try:
        yield
    finally:
        _named.reset(token)


@tf.custom_gradient
def exact_gelu(features: tf.Tensor) -> tuple[tf.Tensor, Derivative]:
    """Return x * Phi(x) by the error function: "gelu" of Hugging Face."""
    value = tf.nn.gelu(features) if _named.get() else _exact(features)
    return value, lambda upstream: _exact_derivative(features, upstream)


@tf.custom_gradient
def tanh_gelu(features: tf.Tensor) -> tuple[tf.Tensor, Derivative]:
    """Return the tanh approximation: Google's BERT, "gelu_new" of Hugging Face."""
    value = tf.nn.gelu(features, approximate=True) if _named.get() else _approximate(features)
    return value, lambda upstream: _approximate_derivative(features, upstream)


# Functions, never strings: in some places of tf-models the string "gelu" means the first of these,
# in others the second.
ACTIVATIONS = {"gelu": exact_gelu, "gelu_new": tanh_gelu}


def _phi(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * tf.math.erf(x * math.sqrt(0.5)) + 0.5


@one_pass
def _exact(x: tf.Tensor) -> tf.Tensor:
    return x * _phi(x)


@one_pass
def _exact_derivative(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    density = tf.exp(-0.5 * tf.square(x)) * math.sqrt(0.5 / math.pi)
    return upstream * (_phi(x) + x * density)


def _tanh(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * tf.pow(x, 3)))


@one_pass
def _approximate(x: tf.Tensor) -> tf.Tensor:
    return x * (0.5 * _tanh(x) + 0.5)


@one_pass
def _approximate_derivative(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    tanh = _tanh(x)
    slope = math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.044715 * tf.square(x))
    return upstream * (0.5 * tanh + 0.5 + 0.5 * x * (1.0 - tf.square(tanh)) * slope)
