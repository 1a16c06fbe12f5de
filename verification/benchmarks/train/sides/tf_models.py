"""Runs the training step of tf-models' own task and optimizer in ``tf.function``, in our loop.

The compile check also compares with it. Its batches are in memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from training.loop.step import Batch
from verification.benchmarks.train.shapes import BATCHES
from verification.benchmarks.train.sides import serving
from verification.benchmarks.train.sides.tensorflow_side import (
    config_of,
    traced,
    use_threads,
    versions,
)
from verification.tpu_compile_check.steps import plain_training_step


class TfModels:
    """A model in training, as tf-models' task would train it."""

    def __init__(self, options: argparse.Namespace) -> None:
        use_threads(options)
        config = config_of(options)
        step = plain_training_step(config, config.training.global_batch_size).function

        @tf.function
        def loop(batches: Iterator[Batch], steps: tf.Tensor) -> tf.Tensor:
            loss = tf.constant(0.0)
            for _ in tf.range(steps):
                loss = tf.cast(step(next(batches))["loss"], tf.float32)
            return loss

        self._loop = loop
        with np.load(options.work / BATCHES) as stored:
            arrays = dict(stored)
        self._batches = iter(tf.data.Dataset.from_tensor_slices(arrays).repeat().prefetch(1))
        self.about: dict[str, Any] = {"versions": versions("tf-keras", "tf-models-official")}

    def run(self, steps: int) -> dict[str, Any]:
        """Train; return the loss of the last step."""
        return {"loss": float(self._loop(self._batches, tf.constant(steps)))}

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a step by type of operation."""
        return traced(self.run, steps)


if __name__ == "__main__":
    sys.exit(serving.main(TfModels))
