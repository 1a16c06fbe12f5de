"""Writes a SavedModel that takes text, or token ids if TensorFlow has no ops for the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from training.exporting.text_ops import RowBuilder, Rows

TOP_WORDS = 5
FILL_MASK, ENCODE, MLM_LOGITS = "fill_mask", "encode", "mlm_logits"

Outputs = dict[str, tf.Tensor]


def write_saved_model(
    folder: Path, model: tf_keras.Model, rows: RowBuilder | None, tokens: Sequence[str]
) -> None:
    """Write the model with the signatures ``fill_mask``, ``encode`` and ``mlm_logits``.

    :param folder: created here.
    :param model: float32, without dropout, and never trained in this process: additions by a
        training to its layers cannot be saved.
    :param rows: makes rows from texts; None: no graph can do that, so ``encode`` takes the inputs
        of ``mlm_logits``, which is the default signature, and there is no ``fill_mask``.
    :param tokens: tokens of the vocabulary, in order of id.
    """
    module = tf.Module()
    module.rows = rows
    # The bare variables: Keras would needlessly trace every layer by itself.
    module.weights = list(model.variables)
    functions = Functions(model, rows, tokens).by_name
    default = functions[MLM_LOGITS if rows is None else FILL_MASK]
    signatures = functions | {"serving_default": default}
    tf.saved_model.save(module, str(folder), signatures=signatures)


class Functions:
    """The graph functions of the SavedModel; all their floating-point results are float32."""

    def __init__(
        self, model: tf_keras.Model, rows: RowBuilder | None, tokens: Sequence[str]
    ) -> None:
        self._model = model
        self._tokens = tf.constant(tokens)
        text = tf.TensorSpec([None], tf.string, name="text")
        names = ("input_word_ids", "input_mask", "input_type_ids")
        ids = [tf.TensorSpec([None, None], tf.int32, name=name) for name in names]
        self.by_name: dict[str, Any] = {MLM_LOGITS: _function(self.mlm_logits, *ids)}
        if rows is None:
            self.by_name[ENCODE] = _function(self.encode_ids, *ids)
        else:
            self._rows = rows
            self.by_name[FILL_MASK] = _function(self.fill_mask, text)
            self.by_name[ENCODE] = _function(self.encode, text)

    def fill_mask(self, text: tf.Tensor) -> Outputs:
        """Return the most likely tokens for each ``[MASK]``, the most likely first.

        :param text: string [R].
        :returns: ``tokens`` and ``probabilities``, [R, M, 5], where M is the largest number of
            masks in a text; texts with fewer masks are padded with empty strings and 0.
            Probabilities are those among all rows of the embedding.
        """
        rows = self._rows(text)
        masked = rows.ids == self._rows.mask_id
        places = tf.ragged.boolean_mask(
            tf.ones_like(rows.ids) * tf.range(tf.shape(masked)[1]), masked
        )
        positions = places.to_tensor()
        logits = self._masked_lm(self._encode(rows)["sequence_output"], positions)
        # Rows of the embedding beyond the vocabulary belong to no token.
        probabilities = tf.nn.softmax(logits)[:, :, : len(self._tokens)]
        best = tf.math.top_k(probabilities, TOP_WORDS)
        is_mask = tf.ones_like(places).to_tensor()[:, :, tf.newaxis] == 1
        return {
            "tokens": tf.where(is_mask, tf.gather(self._tokens, best.indices), ""),
            "probabilities": tf.where(is_mask, best.values, 0.0),
        }

    def encode(self, text: tf.Tensor) -> Outputs:
        """Return the hidden states of texts, with the tokens they belong to.

        :param text: string [R].
        :returns: ``input_word_ids`` and ``input_mask`` [R, S], ``sequence_output`` [R, S, H],
            ``pooled_output`` [R, H] of a model with a pooler.
        """
        rows = self._rows(text)
        tokens = {"input_word_ids": rows.ids, "input_mask": rows.mask}
        return tokens | _states(self._encode(rows))

    def encode_ids(
        self, input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor
    ) -> Outputs:
        """Return the hidden states of tokenized rows; inputs are int32 [R, S] each."""
        return _states(self._encode(Rows(input_word_ids, input_mask), input_type_ids))

    def mlm_logits(
        self, input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor
    ) -> Outputs:
        """Return the masked-LM logits of every position of tokenized rows.

        :param input_word_ids: int32 [R, S], like the other inputs.
        :returns: ``mlm_logits`` [R, S, V].
        """
        rows = Rows(input_word_ids, input_mask)
        encoded = self._encode(rows, input_type_ids)["sequence_output"]
        return {"mlm_logits": self._masked_lm(encoded, _places(input_word_ids))}

    def _encode(self, rows: Rows, types: tf.Tensor | None = None) -> Outputs:
        outputs: Outputs = self._model.encoder_network(
            {
                "input_word_ids": rows.ids,
                "input_mask": rows.mask,
                "input_type_ids": tf.zeros_like(rows.ids) if types is None else types,
            },
            training=False,
        )
        return outputs

    def _masked_lm(self, sequence_output: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        return self._model.masked_lm(sequence_output, masked_positions=positions)


def _states(encoded: Outputs) -> Outputs:
    names = [name for name in ("sequence_output", "pooled_output") if name in encoded]
    return {name: encoded[name] for name in names}


def _places(ids: tf.Tensor) -> tf.Tensor:
    """Return the position of each token in its row, int32 [R, S]."""
    return tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))


def _function(function: Callable[..., Outputs], *signature: tf.TensorSpec) -> Any:
    return tf.function(function, input_signature=signature)
