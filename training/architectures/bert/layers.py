"""tf-models' BERT encoder, computed with fewer passes over memory.

Variables, and the objects in a checkpoint, have the names that they have in tf-models, and in
float32 the results agree to rounding.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling import tf_utils
from official.nlp.modeling.layers import TransformerEncoderBlock
from official.nlp.modeling.networks import BertEncoderV2

from trained_models.architectures.bert.record import NORM_EPSILON


class SelfAttention(tf_keras.layers.MultiHeadAttention):
    """Keras' attention with the axis of heads before that of positions.

    On a CPU, matrix products of [R, N, S, D] take half the time of the einsum over [R, S, N, D].
    On a TPU both become the same program.
    """

    def _compute_attention(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        attention_mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the sums of values, [R, S, N, D], and their weights, [R, N, S, S]."""
        query = tf.multiply(query, 1.0 / math.sqrt(self._key_dim))
        query, key, value = (tf.transpose(part, [0, 2, 1, 3]) for part in (query, key, value))
        scores = tf.matmul(query, key, transpose_b=True)
        weights = self._masked_softmax(scores, attention_mask)
        sums = tf.matmul(self._dropout_layer(weights, training=training), value)
        return tf.transpose(sums, [0, 2, 1, 3]), weights


class EncoderLayer(TransformerEncoderBlock):
    """tf-models' layer, normalized after each part as in BERT, with hidden states of any type.

    In mixed bfloat16, tf-models computes a layer in bfloat16 but passes on every layer norm's
    result as float32: twice the bytes, for digits that the next matrix product drops. Here layer
    norms may return bfloat16; their statistics are always float32.

    :param residual_policy: Keras dtype policy of the layer norms: ``float32``, or
        ``mixed_bfloat16`` for results in bfloat16.
    :param norm_epsilon: epsilon that layer norms add to the variance.
    """

    def __init__(self, *, residual_policy: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._residual_policy = residual_policy

    def build(self, input_shape: Any) -> None:
        """Build tf-models' layer and replace parts of it, none of which has variables yet."""
        super().build(input_shape)
        self._attention_layer = SelfAttention(
            num_heads=self._num_heads,
            key_dim=self._key_dim,
            dropout=self._attention_dropout_rate,
            kernel_initializer=self._attention_initializer,
            name="self_attention",
        )
        self._attention_layer_norm = self._norm("self_attention_layer_norm")
        self._attention_layer_norm_kv = self._attention_layer_norm
        self._output_layer_norm = self._norm("output_layer_norm")

    def _norm(self, name: str) -> tf_keras.layers.LayerNormalization:
        return layer_norm(name, self._residual_policy, self._norm_epsilon)

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

    :param residual_dtype: type of the hidden states between layers: ``float32``, or ``bfloat16`` in
        a model of mixed bfloat16.
    :param norm_epsilon: epsilon that layer norms add to the variance.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        residual_dtype: str,
        norm_epsilon: float = NORM_EPSILON,
        **settings: Any,
    ) -> None:
        super().__init__(num_layers=0, **settings)
        policy = "mixed_bfloat16" if residual_dtype == "bfloat16" else "float32"
        self._embedding_norm_layer = layer_norm("embeddings/layer_norm", policy, norm_epsilon)
        self._config["num_layers"] = num_layers
        for number in range(num_layers):
            layer = EncoderLayer(
                residual_policy=policy,
                norm_epsilon=norm_epsilon,
                num_attention_heads=settings["num_attention_heads"],
                inner_dim=settings["inner_dim"],
                inner_activation=settings["inner_activation"],
                output_dropout=settings["output_dropout"],
                attention_dropout=settings["attention_dropout"],
                kernel_initializer=tf_utils.clone_initializer(settings["initializer"]),
                name=f"transformer/layer_{number}",
            )
            self._transformer_layers.append(layer)


class UnpooledEncoder(Encoder):
    """The encoder of BERT without segments and without a pooler."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The layer has no variables before it is called.
        del self._pooler_layer

    def embed(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the embeddings of rows before they are normalized, [R, S, H].

        :param ids: int32 [R, S].
        :param mask: int32 [R, S], 1 for tokens and 0 for padding.
        """
        raise NotImplementedError

    def call(self, inputs: dict[str, tf.Tensor]) -> dict[str, Any]:
        """Return ``sequence_output`` [R, S, H] and ``encoder_outputs``, those of all layers.

        :param inputs: ``input_word_ids`` and ``input_mask``, int32 [R, S]; others are not used.
        """
        embedded = self.embed(inputs["input_word_ids"], inputs["input_mask"])
        hidden = self._embedding_dropout(self._embedding_norm_layer(embedded))
        mask = self._attention_mask_layer(hidden, inputs["input_mask"])
        outputs = []
        for layer in self.transformer_layers:
            hidden = layer([hidden, mask])
            outputs.append(hidden)
        return {"sequence_output": hidden, "encoder_outputs": outputs}


def layer_norm(
    name: str, policy: str, epsilon: float = NORM_EPSILON
) -> tf_keras.layers.LayerNormalization:
    """Return a layer norm, BERT's by default; its statistics are float32 whatever its policy."""
    return tf_keras.layers.LayerNormalization(epsilon=epsilon, dtype=policy, name=name)
