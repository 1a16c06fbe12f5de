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
from training.architectures.bert.layers import Encoder
from training.architectures.bert.model import assemble, assemble_encoder, initializer


class DistilEncoder(Encoder):
    """The encoder of BERT, but that it looks at no segments and has no pooler."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Neither has variables before it is called.
        del self._type_embedding_layer, self._pooler_layer

    def call(self, inputs: dict[str, tf.Tensor]) -> dict[str, Any]:
        """Return ``sequence_output`` [R, S, H], and it and those of the layers below.

        :param inputs: ``input_word_ids`` and ``input_mask``, int32 [R, S]; others are not used.
        """
        words = self._embedding_layer(inputs["input_word_ids"])
        hidden = self._embedding_norm_layer(words + self._position_embedding_layer(words))
        hidden = self._embedding_dropout(hidden)
        mask = self._attention_mask_layer(hidden, inputs["input_mask"])
        outputs = []
        for layer in self.transformer_layers:
            hidden = layer([hidden, mask])
            outputs.append(hidden)
        return {"sequence_output": hidden, "encoder_outputs": outputs}


def build_model(config: PipelineConfig) -> BertPretrainerV2:
    """See :class:`training.architectures.models.Architecture`, as for the others."""
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


def trained_variables(model: BertPretrainerV2, config: PipelineConfig) -> list[tf.Variable]:
    """Return all variables, but those of the frozen layers and the embeddings below them."""
    encoder, frozen_layers = model.encoder_network, config.training.frozen_layers
    if not frozen_layers:
        return list(model.trainable_variables)
    layers_above = encoder.transformer_layers[frozen_layers:]
    above = {id(v) for layer in layers_above for v in layer.trainable_variables}
    kept = {id(v) for v in encoder.trainable_variables} - above
    return [v for v in model.trainable_variables if id(v) not in kept]
