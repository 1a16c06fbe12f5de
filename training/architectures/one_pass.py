"""Fuses chains of elementwise operations into one pass over memory when a CPU trains.

TensorFlow's CPU kernels write the result of every operation to memory. XLA turns such a chain into
one loop; its matrix products are slower than TensorFlow's on CPUs, so it compiles only the chains.
On a TPU, XLA compiles the step as a whole.
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
    """Compile functions marked with :func:`one_pass` that are traced here; on CPUs only.

    Use it only where a training step is traced: the user of an exported model may have no compiler.
    """
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    token = _fusing.set(kinds.isdisjoint({"GPU", "TPU"}))
    try:
        yield
    finally:
        _fusing.reset(token)


def one_pass(function: Callable[_Given, tf.Tensor]) -> Callable[_Given, tf.Tensor]:
    """Mark a chain of elementwise operations; no gradient is derived through its compilation."""
    compiled = tf.function(function, jit_compile=True)

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> tf.Tensor:
        return (compiled if _fusing.get() else function)(*args, **kwargs)

    return call
