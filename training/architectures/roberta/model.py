"""RoBERTa: our encoder without pooler, whose positions start after the padding id.

https://github.com/huggingface/transformers/blob/main/src/transformers/models/roberta
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf
import tf_keras
from official.nlp.modeling.layers import PositionEmbedding
from official.nlp.modeling.models import BertPretrainerV2

from pipeline_config import PipelineConfig
from trained_models.architectures.roberta.record import (
    FIRST_POSITION,
    NORM_EPSILON,
    PAD_ID,
    SEGMENT_TYPES,
)
from training.architectures.activations import ACTIVATIONS
from training.architectures.bert.layers import UnpooledEncoder
from training.architectures.bert.model import assemble, assemble_encoder, initializer


class Positions(PositionEmbedding):
    """Position embeddings: tokens have positions from 2 on, padding has position 1."""

    def call(self, inputs: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
        """Return the embeddings, [R, S, H].

        :param inputs: embeddings of words, [R, S, H].
        :param input_mask: int32 [R, S], 1 where there is a token; padding is at the end of a row.
        """
        table = self._position_embeddings
        rows = table[FIRST_POSITION : FIRST_POSITION + tf.shape(inputs)[1]]
        return tf.where(input_mask[:, :, None] == 1, rows, table[PAD_ID])


class RobertaEncoder(UnpooledEncoder):
    """The encoder of RoBERTa; it ignores the segments of tokens."""

    def __init__(self, *, max_sequence_length: int, type_vocab_size: int, **settings: Any) -> None:
        del type_vocab_size
        rows = max_sequence_length + FIRST_POSITION
        super().__init__(
            max_sequence_length=rows,
            type_vocab_size=SEGMENT_TYPES,
            norm_epsilon=NORM_EPSILON,
            **settings,
        )
        # The replaced layer has no variables before it is called.
        self._position_embedding_layer = Positions(
            initializer=initializer(), max_length=rows, name="position_embedding"
        )

    def embed(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """See :class:`UnpooledEncoder`."""
        words = self._embedding_layer(ids)
        types = self._type_embedding_layer(tf.zeros_like(ids))
        return words + self._position_embedding_layer(words, input_mask=mask) + types


def build_model(config: PipelineConfig) -> BertPretrainerV2:
    """Return the pretraining model; see :class:`training.architectures.models.Architecture`."""
    return assemble(config, _maker(config), ACTIVATIONS[config.model.hidden_act])


def build_encoder(config: PipelineConfig) -> RobertaEncoder:
    """Return an encoder alone, which has its variables once it is called."""
    return assemble_encoder(config.model, _maker(config), ACTIVATIONS[config.model.hidden_act])


def _maker(config: PipelineConfig) -> partial[RobertaEncoder]:
    return partial(RobertaEncoder, residual_dtype=config.training.residual_dtype)


def make_pooler(config: PipelineConfig) -> tf_keras.layers.Dense:
    """Return the layer before a classifier, which is fine-tuned with it from random weights."""
    return tf_keras.layers.Dense(
        config.model.hidden_size,
        activation="tanh",
        kernel_initializer=initializer(),
        name="classifier_dense",
    )
