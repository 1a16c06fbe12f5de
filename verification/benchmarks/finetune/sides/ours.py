"""Runs our fine-tuning: the trainer's own loop of steps on batches of its input pipeline."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import tensorflow as tf

from pipeline_config.finetuning import training_config
from pipeline_config.training_schema import ModelConfig
from pipeline_store.formats import TaskSplit
from training.finetuning.objective import FineTuning
from training.finetuning.task_data import Task
from training.model.dropout import make_dropout_stateless
from training.runtime.strategies import create_strategy
from verification.benchmarks.finetune import work
from verification.benchmarks.train.settings import speed_recipe
from verification.benchmarks.train.shapes import SHAPES, VOCABULARY_SIZE
from verification.benchmarks.train.sides import serving
from verification.benchmarks.train.sides.tensorflow_side import traced, use_threads, versions

# More steps than are ever measured, so that the learning rate hardly changes.
_STEPS = 1_000_000


class Ours:
    """A classifier in training, built as in :mod:`training.loop.trainer`."""

    def __init__(self, options: argparse.Namespace) -> None:
        use_threads(options)
        task = Task.load((options.work / work.MANIFEST).read_text())
        recipe, size = speed_recipe(options.dropout), SHAPES[options.shape]
        model = ModelConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=size.inner,
        )
        config = training_config(
            recipe,
            model,
            train_steps=_STEPS,
            checkpoint_interval=_STEPS,
            learning_rate=recipe.learning_rates[0],
            random_seed=1,
        )
        strategy = create_strategy(config, [recipe.global_batch_size])
        train = task.examples(TaskSplit.TRAIN)
        objective = FineTuning(config, recipe, task, train, None, None)
        with strategy.scope():
            built = objective.build_model()
            optimizer = objective.build_optimizer(built)
        make_dropout_stateless(built, 1, optimizer.iterations)
        self._loop = objective.make_loop(strategy, built, optimizer)
        self._batches = objective.batches(strategy)
        self._step = 0
        self.about: dict[str, Any] = {
            "versions": versions("tf-keras", "tf-models-official"),
            "parameters": sum(v.shape.num_elements() for v in built.trainable_variables),
        }

    def run(self, steps: int) -> dict[str, Any]:
        """Train; return the mean loss of the steps."""
        metrics = self._loop(self._batches.take(self._step, steps), tf.constant(steps))
        self._step += steps
        return {"loss": float(metrics.loss_sum) / float(metrics.examples)}

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a step by type of operation."""
        return traced(self.run, steps)


if __name__ == "__main__":
    sys.exit(serving.main(Ours))
