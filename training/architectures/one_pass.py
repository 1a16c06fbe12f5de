"""Chains of elementwise operations in one pass over memory where a CPU trains.

TensorFlow's kernels for CPUs write the result of every operation to memory. XLA makes one loop of
such a chain; on matrix products it is slower than TensorFlow's there, so it gets only the chains. A
TPU's step is compiled by XLA as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec

import tensorflow as tf

_Given = ParamSpec("_Given")
_fusing: ContextVar[bool] = ContextVar("fusing", default=False)


@contextmanager
def elementwise_in_one_pass() -> Iterator[None]:
    """Compile what is traced in this context and marked with :func:`one_pass`; on CPUs only.

    To be used where a training step is traced and nowhere else: who loads an exported model may
    have no compiler.
    """
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    token = _fusing.set(kinds.isdisjoint({"GPU", "TPU"}))
    try:
        yield
    finally:
        _fusing.reset(token)


def one_pass(function: Callable[_Given, tf.Tensor]) -> Callable[_Given, tf.Tensor]:
    """Mark a chain of elementwise operations. Its gradient is not derived through a compilation."""
    compiled = tf.function(function, jit_compile=True)

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> tf.Tensor:
        return (compiled if _fusing.get() else function)(*args, **kwargs)

    return call
