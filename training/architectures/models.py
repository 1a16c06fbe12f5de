"""Builds models of any architecture; returns their variables and their hash.

``model.architecture`` names a folder next to this file whose ``record.py`` defines
``ARCHITECTURE``; the parts that need no TensorFlow are in :mod:`trained_models.architectures`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_config.training_schema import ModelConfig


@dataclass(frozen=True)
class Architecture:
    """The interface between the trainer and an architecture.

    An encoder takes the inputs of :data:`training.model.forward.INPUTS` and returns, by name,
    ``sequence_output`` [R, S, H] and, if it has a pooler, ``pooled_output`` [R, H]; it has
    ``transformer_layers``. A pretraining model has it as ``encoder_network``, and
    ``classification_heads``, which may be empty.

    Functions that an architecture does not support raise a UserError.

    :param build_model: returns the pretraining model; its outputs are ``mlm_logits`` [R, P, V] for
        the predictions and, with next-sentence prediction, ``next_sentence`` [R, 2].
    :param build_encoder: returns an encoder alone, whose variables are created when it is called.
    :param build_plain: returns the model made of tf-models' own parts, as a reference for
        comparisons; None: there is no such model.
    :param trained_variables: returns the variables that pretraining changes, in the model's order.
    :param make_pooler: returns the layer from the first token's last hidden state [R, H] to a
        classifier's features [R, H]; None: the encoder's own pooler does this.
    :param initializer: returns the initializer of kernels and embeddings.
    :param no_weight_decay: regular expressions for the names of variables that do not decay.
    :param scale: the root mean square of a variable's weights that Amos expects (its eta).
    :param averaged_axes: the axes over which Amos averages a variable's statistics.
    """

    build_model: Callable[[PipelineConfig], tf_keras.Model]
    build_encoder: Callable[[PipelineConfig], tf_keras.layers.Layer]
    build_plain: Callable[[PipelineConfig], tf_keras.Model] | None
    trained_variables: Callable[[tf_keras.Model, PipelineConfig], list[tf.Variable]]
    make_pooler: Callable[[PipelineConfig], tf_keras.layers.Layer] | None
    initializer: Callable[[], tf_keras.initializers.Initializer]
    no_weight_decay: tuple[str, ...]
    scale: Callable[[tf.Variable], float]
    averaged_axes: Callable[[tf.Variable], list[int]]


def architecture_of(model: ModelConfig) -> Architecture:
    """Return the architecture of a model."""
    module = import_module(f"training.architectures.{model.architecture}.record")
    found: Architecture = module.ARCHITECTURE
    return found


def build_model(config: PipelineConfig) -> tf_keras.Model:
    """Return the pretraining model with all its variables, drawn from training.random_seed."""
    return architecture_of(config.model).build_model(config)


def trained_variables(model: tf_keras.Model, config: PipelineConfig) -> list[tf.Variable]:
    """Return the variables that pretraining changes, in the model's order."""
    return architecture_of(config.model).trained_variables(model, config)


def has_next_sentence_head(model: tf_keras.Model) -> bool:
    """Return whether a pretraining model predicts next sentences."""
    return bool(model.classification_heads)


@contextmanager
def arithmetic(dtype: str) -> Iterator[None]:
    """Make layers that are built here compute in this type; their variables stay float32."""
    before = tf_keras.mixed_precision.global_policy()
    policy = "mixed_bfloat16" if dtype == "bfloat16" else "float32"
    tf_keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


def named_variables(model: tf_keras.Model) -> dict[str, tf.Variable]:
    """Return the model's variables by name, without TensorFlow's ``:0``."""
    return {variable.name.removesuffix(":0"): variable for variable in model.variables}


def weights_sha256(model: tf_keras.Model) -> str:
    """Return the hash of all weights; equal hashes mean bit-identical models."""
    digest = hashlib.sha256()
    for name, variable in sorted(named_variables(model).items()):
        value = variable.numpy()
        digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
