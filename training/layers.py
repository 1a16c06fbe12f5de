"""tf-models' BERT encoder with hidden states that may stay bfloat16 from layer to layer.

In mixed bfloat16, tf-models computes a layer in bfloat16 but hands on every layer norm's result as
float32: twice the bytes, for digits that the next matrix multiplication drops. A TPU has more
arithmetic than memory bandwidth, so those bytes cost time. Here layer norms may return bfloat16.
Their statistics stay float32, as do all variables.

Variables, and the objects in a checkpoint, have the names that they have in tf-models.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from official.modeling import tf_utils
from official.nlp.modeling.layers import TransformerEncoderBlock
from official.nlp.modeling.networks import BertEncoderV2


class EncoderLayer(TransformerEncoderBlock):
    """tf-models' layer, normalized after each part as in BERT.

    :param residual_policy: Keras dtype policy of the layer norms; ``mixed_bfloat16`` has float32
        statistics and bfloat16 results.
    """

    def __init__(self, *, residual_policy: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._residual_policy = residual_policy

    def build(self, input_shape: Any) -> None:
        """Build the parts of tf-models' layer; its layer norms have no variables yet."""
        super().build(input_shape)
        for norm in (self._attention_layer_norm, self._output_layer_norm):
            norm._set_dtype_policy(self._residual_policy)

    def call(self, inputs: list[tf.Tensor], output_range: int | None = None) -> tf.Tensor:
        """Return the hidden states after this layer, [R, S, H].

        :param inputs: hidden states before it, [R, S, H], and attention mask, [R, S, S].
        :param output_range: always None; tf-models' encoder passes it.
        """
        hidden, mask = inputs
        attended = self._attention_layer(query=hidden, value=hidden, attention_mask=mask)
        attended = self._attention_dropout(attended)
        hidden = self._attention_layer_norm(hidden + attended)

        inner = self._intermediate_activation_layer(self._intermediate_dense(hidden))
        output = self._output_dropout(self._output_dense(inner))
        return self._output_layer_norm(hidden + tf.cast(output, hidden.dtype))


class Encoder(BertEncoderV2):
    """tf-models' encoder, made of :class:`EncoderLayer`.

    :param residual_dtype: ``float32``, or ``bfloat16`` in a model of mixed bfloat16.
    """

    def __init__(self, *, num_layers: int, residual_dtype: str, **settings: Any) -> None:
        super().__init__(num_layers=0, **settings)
        policy = "mixed_bfloat16" if residual_dtype == "bfloat16" else "float32"
        self._embedding_norm_layer._set_dtype_policy(policy)
        self._config["num_layers"] = num_layers
        self._transformer_layers += [
            EncoderLayer(
                residual_policy=policy,
                num_attention_heads=settings["num_attention_heads"],
                inner_dim=settings["inner_dim"],
                inner_activation=settings["inner_activation"],
                output_dropout=settings["output_dropout"],
                attention_dropout=settings["attention_dropout"],
                kernel_initializer=tf_utils.clone_initializer(settings["initializer"]),
                name=f"transformer/layer_{number}",
            )
            for number in range(num_layers)
        ]
