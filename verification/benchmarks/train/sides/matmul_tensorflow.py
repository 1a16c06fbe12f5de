"""Runs only square matrix multiplications in TensorFlow, to find the machine's limit."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from verification.benchmarks.train.sides import serving
from verification.benchmarks.train.sides.tensorflow_side import traced, use_threads, versions

SIZES = (1024, 2048, 4096)


class Matmul:
    """A side that multiplies matrices of the fastest size."""

    def __init__(self, options: argparse.Namespace) -> None:
        use_threads(options)
        dtype = tf.dtypes.as_dtype(options.dtype)
        self._size = min(
            SIZES, key=lambda size: _seconds_a_flop(_multiplication(size, dtype), size)
        )
        self._multiply = _multiplication(self._size, dtype)
        self.about: dict[str, Any] = {"versions": versions()}

    def run(self, steps: int) -> dict[str, Any]:
        """Multiply; return the number of floating-point operations."""
        for _ in range(steps):
            self._multiply()
        return {"flops": 2.0 * self._size**3 * steps}

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a multiplication by type of operation."""
        return traced(self.run, steps)


def _multiplication(size: int, dtype: tf.DType) -> Callable[[], tf.Tensor]:
    left, right = (tf.Variable(tf.cast(tf.random.normal([size, size]), dtype)) for _ in range(2))
    return tf.function(lambda: tf.linalg.matmul(left, right))


def _seconds_a_flop(multiply: Callable[[], tf.Tensor], size: int) -> float:
    multiply()
    begin = time.perf_counter()
    multiply()
    return (time.perf_counter() - begin) / size**3


if __name__ == "__main__":
    sys.exit(serving.main(Matmul))
