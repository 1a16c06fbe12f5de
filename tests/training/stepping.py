"""A model and its step without a trainer around them, and a batch that is awkward on purpose."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from pipeline_config import PipelineConfig
from tests.training.corpora import FIRST_WORD
from training.architectures.models import build_model, named_variables, trained_variables
from training.loop.step import Batch, StepMetrics, make_replica_step
from training.model.dropout import make_dropout_stateless
from training.optimization.optimizers import build_optimizer

ROWS = 8


def random_batch(rows: int = ROWS) -> Batch:
    """Return rows with very different numbers of predictions; the first one has none."""
    draw = np.random.default_rng(3)
    width, slots = 16, 4
    lengths = draw.integers(width // 2, width + 1, (rows, 1))
    words = draw.integers(FIRST_WORD, 300, (rows, width))
    weights = draw.integers(0, 2, (rows, slots)).astype(np.float32)
    weights[0], weights[-1] = 0.0, 1.0
    batch = {
        "input_word_ids": words * (np.arange(width) < lengths),
        "input_mask": np.arange(width) < lengths,
        "input_type_ids": np.zeros((rows, width)),
        "masked_lm_positions": draw.integers(1, width // 2, (rows, slots)),
        "masked_lm_ids": draw.integers(FIRST_WORD, 300, (rows, slots)),
        "next_sentence_labels": draw.integers(0, 2, (rows, 1)),
    }
    return {name: tf.constant(value, tf.int32) for name, value in batch.items()} | {
        "masked_lm_weights": tf.constant(weights)
    }


class Training:
    """A model and its step, compiled as a function of a batch."""

    def __init__(self, config: PipelineConfig, *, jit_compile: bool = False) -> None:
        self.model = build_model(config)
        self.variables = trained_variables(self.model, config)
        self.optimizer = optimizer = build_optimizer(config, self.variables)
        if config.model.hidden_dropout_prob:
            make_dropout_stateless(self.model, config.training.random_seed, optimizer.iterations)
        step = make_replica_step(self.model, optimizer, config)
        self.step = tf.function(step, jit_compile=jit_compile)

    def run(self, batch: Batch, steps: int = 1) -> StepMetrics:
        """Return the metrics of the last step."""
        for _ in range(steps):
            metrics = self.step(batch)
        return StepMetrics(*(float(value) for value in metrics))

    @property
    def weights(self) -> dict[str, np.ndarray]:
        return {name: v.numpy() for name, v in named_variables(self.model).items()}
