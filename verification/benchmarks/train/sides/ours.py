"""Runs our training: the trainer's own loop of steps on batches of its input pipeline."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from trained_models.phases import phases
from trained_models.record_sources import phase_sources
from training.architectures.models import build_model, trained_variables
from training.input.data import load_training_data, training_dataset
from training.loop.step import Batch, TrainLoop, make_train_loop
from training.model.dropout import make_dropout_stateless
from training.optimization.optimizers import build_optimizer
from training.runtime.strategies import create_strategy
from verification.benchmarks.train.shapes import MANIFEST, STORE
from verification.benchmarks.train.sides import serving
from verification.benchmarks.train.sides.tensorflow_side import (
    config_of,
    traced,
    use_threads,
    versions,
)


class Ours:
    """A model in training, built as in :mod:`training.loop.trainer`."""

    def __init__(self, options: argparse.Namespace) -> None:
        use_threads(options)
        config = config_of(options)
        strategy = create_strategy(config, [config.training.global_batch_size])
        self._loop, parameters = train_loop(strategy, config)
        self._batches = batches(strategy, config, options.work)
        self.about: dict[str, Any] = {
            "versions": versions("tf-keras", "tf-models-official"),
            "parameters": parameters,
        }

    def run(self, steps: int) -> dict[str, Any]:
        """Train; return the mean loss of the steps."""
        metrics = self._loop(self._batches, tf.constant(steps))
        return {
            "loss": float(metrics.loss_sum) / float(metrics.masked_tokens),
            "input_wait_s": float(metrics.input_wait_seconds),
        }

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a step by type of operation."""
        return traced(self.run, steps)


def train_loop(strategy: tf.distribute.Strategy, config: PipelineConfig) -> tuple[TrainLoop, int]:
    """Return the measured loop of steps, and the number of weights that it trains."""
    with strategy.scope():
        model = build_model(config)
        variables = trained_variables(model, config)
        optimizer = build_optimizer(config, variables)
    if config.model.hidden_dropout_prob or config.model.attention_probs_dropout_prob:
        make_dropout_stateless(model, config.training.random_seed, optimizer.iterations)
    parameters = sum(variable.shape.num_elements() for variable in variables)
    return make_train_loop(strategy, model, optimizer, config), parameters


def batches(
    strategy: tf.distribute.Strategy, config: PipelineConfig, work: Path
) -> Iterator[tuple[Batch]]:
    """Return the batches of the first phase, starting at its first step."""
    store = StoreLayout(str(work / STORE))
    manifest = (work / MANIFEST).read_text()
    data = load_training_data(phase_sources([manifest], [], store, config), store, config)
    return iter(training_dataset(data, phases(config)[0], 0, 0, strategy))


if __name__ == "__main__":
    sys.exit(serving.main(Ours))
