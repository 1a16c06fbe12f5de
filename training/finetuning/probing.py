"""Training of a classifier on a frozen encoder, whose features are computed once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf
import tf_keras

from trained_models.flops import TRAINED
from training.finetuning.model import FEATURES, Probe, build_classifier, build_probe
from training.finetuning.objective import FineTuning
from training.finetuning.scoring import Forward, mean_hidden_states
from training.finetuning.task_data import Examples
from training.model.starts import Initial

# A feature with a smaller standard deviation than this has only noise to learn.
_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True)
class Probing(FineTuning):
    """The objective of a :class:`training.finetuning.model.Probe`.

    ``train`` and ``validation`` hold features; ``loaded`` is the outcome of loading the encoder's
    weights that computed them.
    """

    loaded: Initial | None

    def build_model(self) -> Probe:
        """Return the model with all its variables."""
        model = build_probe(self.config, self.task.outputs, self.recipe.classifier_dropout)
        features = self.train.inputs[FEATURES].astype(np.float64)
        model.mean.assign(features.mean(axis=0))
        model.scale.assign(1.0 / np.maximum(features.std(axis=0), _LEAST_DEVIATION))
        return model

    def load_initial(
        self, model: tf_keras.Model, optimizer: tf_keras.optimizers.legacy.Optimizer
    ) -> Initial | None:
        """Return the weights loaded into the encoder; the classifier keeps its random weights."""
        return self.loaded

    def step_flops(self, step: int) -> int:
        """Return the model FLOPs of a step, the dense layer's."""
        per_example = 2 * self.config.model.hidden_size * self.task.outputs
        return TRAINED * self.config.training.global_batch_size * per_example


def encoder_features(
    objective: FineTuning, strategy: tf.distribute.Strategy
) -> tuple[Forward, Initial | None]:
    """Return a function from examples to their features, and the weights loaded for it."""
    with strategy.scope():
        model = build_classifier(objective.config, objective.task.outputs, 0.0)
    loaded = objective.load_encoder(model)
    batch_size = objective.recipe.eval_batch_size
    return mean_hidden_states(model.encoder_network, strategy, batch_size), loaded


def with_features(examples: Examples, features: Forward) -> Examples:
    """Return the examples with features in the place of tokens."""
    return replace(examples, inputs={FEATURES: features(examples)})
