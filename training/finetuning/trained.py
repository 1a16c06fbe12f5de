"""Loads a trained classifier from its trial's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from pydantic import JsonValue

from pipeline_config import PipelineConfig
from pipeline_config.finetuning import RecipeConfig, training_config
from pipeline_config.task import TaskKind
from pipeline_store.formats import EncoderSource, TrainingInputs, TrialResult
from pipeline_store.layout import StoreLayout, TrialLayout
from trained_models import artifacts
from trained_models.errors import BadDataError
from training.architectures.models import named_variables, weights_sha256
from training.finetuning.encoder import check_encoder, encoder_uri, model_settings
from training.finetuning.model import Classifier, Probe, build_classifier, build_probe
from training.finetuning.probing import with_features
from training.finetuning.scoring import Forward, logits_of, mean_hidden_states
from training.finetuning.task_data import Examples
from training.importing.loading import initial_model
from training.model.checkpoints import load_encoder, load_ours


@dataclass(frozen=True)
class TrainedTrial:
    """A trained model, and the task that it was trained for.

    :param inputs: inputs of the training.
    :param config: configuration of the model.
    :param labels: labels in order of their ids; empty for a regression.
    :param model: the classifier; for a probe its dense layer.
    :param encoder: for a probe, the encoder of its features; otherwise None, as the model has it.
    """

    inputs: TrainingInputs
    config: PipelineConfig
    kind: TaskKind
    labels: list[str]
    max_seq_length: int
    model: Classifier | Probe
    encoder: tf_keras.Model | None

    def forward(self, strategy: tf.distribute.Strategy, batch_size: int) -> Forward:
        """Return a compiled function from examples to logits, float32 [N, outputs]."""
        logits = logits_of(self.model, strategy, batch_size)
        if self.encoder is None:
            return logits
        features = mean_hidden_states(self.encoder, strategy, batch_size)
        return lambda examples: logits(with_features(examples, features))


def load_trial_model(
    result_uri: str,
    store: StoreLayout,
    strategy: tf.distribute.Strategy | None = None,
    changes: Mapping[str, JsonValue] | None = None,
) -> TrainedTrial:
    """Load the model of a finished trial.

    :param result_uri: URI of the trial's ``result.json``.
    :param store: store that contains a probe's encoder.
    :param strategy: strategy that creates the model's variables; None: on the CPU.
    :param changes: overrides of the recipe, such as the type of the arithmetic.
    :raises FileNotFoundError: the result is missing.
    :raises FormatError: a file does not verify.
    :raises BadDataError: the weights are not those of the result.
    :raises UserError: a probe's encoder is missing, or not the one that it was trained on.
    """
    result = TrialResult.load(result_uri)
    recipe = RecipeConfig.model_validate(result.settings | dict(changes or {}))
    layout = TrialLayout(result_uri.rpartition("/")[0])
    strategy = strategy or tf.distribute.OneDeviceStrategy("/cpu:0")
    trained = load_trained(layout, recipe, result.encoder, store, strategy)
    found = weights_sha256(trained.model)
    if found != result.weights_sha256:
        raise BadDataError(
            f"{layout.training.root} holds the weights {found}, but {result_uri} speaks of "
            f"{result.weights_sha256}. Restore the folder from a backup, or run the trial again."
        )
    return trained


def load_trained(
    layout: TrialLayout,
    recipe: RecipeConfig,
    encoder: EncoderSource,
    store: StoreLayout,
    strategy: tf.distribute.Strategy,
) -> TrainedTrial:
    """Load the model of a trial's finished training.

    :raises UserError: a probe's encoder is missing, or not the one that it was trained on.
    """
    files = artifacts.model_files(layout.training.root)
    inputs = artifacts.load_inputs(files)
    settings: dict[str, Any] = dict(inputs.settings)
    config = training_config(
        recipe,
        model_settings(inputs),
        train_steps=1,
        checkpoint_interval=1,
        learning_rate=1.0,
        random_seed=settings["training.random_seed"],
    )
    outputs = len(settings["task.labels"]) or 1
    with strategy.scope():
        classifier = build_classifier(config, outputs, recipe.classifier_dropout)
        probe = build_probe(config, outputs, 0.0) if recipe.frozen_encoder else None
    model = probe or classifier
    load_ours(named_variables(model), layout.training.root)
    uri = encoder_uri(encoder, store)
    if probe is not None and uri is not None:
        check_encoder(encoder, store, config, inputs.vocabulary_sha256)
        load_encoder(classifier.encoder_network, initial_model(uri, store, config))
    return TrainedTrial(
        inputs=inputs,
        config=config,
        kind=settings["task.kind"],
        labels=settings["task.labels"],
        max_seq_length=settings["task.max_seq_length"],
        model=model,
        encoder=None if probe is None else classifier.encoder_network,
    )


def predict_logits(
    trained: TrainedTrial, examples: Examples, batch_size: int = 128
) -> npt.NDArray[np.float32]:
    """Return a trained model's logits for examples, [N, outputs]."""
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    return trained.forward(strategy, batch_size)(examples)
