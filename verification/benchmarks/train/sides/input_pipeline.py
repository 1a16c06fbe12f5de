"""Runs our input pipeline alone: batches are made and dropped."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from training.runtime.strategies import create_strategy
from verification.benchmarks.train.sides import serving
from verification.benchmarks.train.sides.ours import batches
from verification.benchmarks.train.sides.tensorflow_side import (
    config_of,
    traced,
    use_threads,
    versions,
)


class InputPipeline:
    """The batches of a training."""

    def __init__(self, options: argparse.Namespace) -> None:
        use_threads(options)
        config = config_of(options)
        strategy = create_strategy(config, [config.training.global_batch_size])
        self._batches = batches(strategy, config, options.work)
        self.about: dict[str, Any] = {"versions": versions()}

    def run(self, steps: int) -> dict[str, Any]:
        """Take the batches of the given number of steps."""
        for _ in range(steps):
            next(self._batches)
        return {}

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a batch by type of operation."""
        return traced(self.run, steps)


if __name__ == "__main__":
    sys.exit(serving.main(InputPipeline))
