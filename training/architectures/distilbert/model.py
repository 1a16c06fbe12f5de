"""DistilBERT: our encoder without segments and pooler, and the layer that pools for a classifier.

https://github.com/huggingface/transformers/blob/main/src/transformers/models/distilbert
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf
import tf_keras
from official.nlp.modeling.models import BertPretrainerV2

from pipeline_config import PipelineConfig
from training.architectures.activations import ACTIVATIONS
from training.architectures.bert.layers import UnpooledEncoder
from training.architectures.bert.model import assemble, assemble_encoder, initializer


class DistilEncoder(UnpooledEncoder):
    """The encoder of DistilBERT."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The layer has no variables before it is called.
        del self._type_embedding_layer

    def embed(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """See :class:`UnpooledEncoder`."""
        del mask
        words = self._embedding_layer(ids)
        return words + self._position_embedding_layer(words)


def build_model(config: PipelineConfig) -> BertPretrainerV2:
    """Return the pretraining model; see :class:`training.architectures.models.Architecture`."""
    return assemble(config, _maker(config), ACTIVATIONS[config.model.hidden_act])


def build_encoder(config: PipelineConfig) -> DistilEncoder:
    """Return an encoder alone, which has its variables once it is called."""
    return assemble_encoder(config.model, _maker(config), ACTIVATIONS[config.model.hidden_act])


def _maker(config: PipelineConfig) -> partial[DistilEncoder]:
    return partial(DistilEncoder, residual_dtype=config.training.residual_dtype)


def make_pooler(config: PipelineConfig) -> tf_keras.layers.Dense:
    """Return the layer before a classifier, which is fine-tuned with it from random weights."""
    return tf_keras.layers.Dense(
        config.model.hidden_size,
        activation="relu",
        kernel_initializer=initializer(),
        name="pre_classifier",
    )
