"""T5 as a pretraining model: it generates the spans that the sentinels of a row replace."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_config.row_shapes import longest_corrupted
from trained_models.architectures.t5.record import sizes_of
from trained_models.text_to_text.sizes import PAD, SOURCE, TARGET, Sizes
from trained_models.text_to_text.weights import Values, weights
from training.architectures.t5.text_to_text import TextToText


class SpanPretrainer(TextToText):
    """A T5 model that takes masked-LM records, whose predictions form one text, the target.

    :param config: provides sizes, dropout, arithmetic, and how rows are corrupted.
    """

    # There is no next-sentence prediction.
    classification_heads = ()

    def __init__(self, config: PipelineConfig) -> None:
        model = config.model
        dtype = config.training.mixed_precision_dtype
        super().__init__(sizes_of(model), model.hidden_dropout_prob, dtype)
        self._masking = config.masking

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> dict[str, tf.Tensor]:
        """Return ``mlm_logits`` of each target token given the previous ones, [R, P, V].

        :param inputs: ``input_word_ids`` [R, S]: rows with sentinels, framed by a first and a
            last token. ``masked_lm_ids`` [R, P]: targets.
        """
        rows = inputs["input_word_ids"]
        # Rows are empty after this: spans became sentinels.
        end = 1 + longest_corrupted(self._masking, rows.shape[1]).source
        batch = {SOURCE: rows[:, 1:end], TARGET: inputs["masked_lm_ids"]}
        return {"mlm_logits": super().call(batch, training)}

    def encoder_network(
        self, inputs: dict[str, tf.Tensor], training: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return the encoder's ``sequence_output`` of rows framed as for :meth:`call`, [R, S, H].

        :param inputs: ``input_word_ids`` [R, S].
        """
        for drop in self._drops:
            drop.begin()
        ids = inputs["input_word_ids"]
        # The first token of a row is no token of T5; no position attends to padding.
        text = tf.concat([tf.fill([tf.shape(ids)[0], 1], PAD), ids[:, 1:]], axis=1)
        return {"sequence_output": self.transformer.encode(text, training=training)}


def build_model(config: PipelineConfig) -> SpanPretrainer:
    """Return the model with all its variables, random weights drawn from training.random_seed."""
    model = SpanPretrainer(config)
    model.set_weights_by_name(random_weights(model.sizes, config.training.random_seed))
    return model


def random_weights(sizes: Sizes, seed: int) -> Values:
    """Return T5's initial weights: normal, with the standard deviations of mesh-tensorflow.

    T5's attention does not divide by the square root of a head's width; query kernels are smaller
    by that factor instead.
    """
    random = np.random.default_rng(seed)
    width, inner = sizes.d_model, sizes.num_heads * sizes.d_kv
    deviations = {
        "shared/embedding": 1.0,
        "rel_embedding/embedding": width**-0.5,
        "attention/q/kernel": (width * sizes.d_kv) ** -0.5,
        "attention/k/kernel": width**-0.5,
        "attention/v/kernel": width**-0.5,
        "attention/o/kernel": inner**-0.5,
        "ffn/wi/kernel": width**-0.5,
        "ffn/wi_0/kernel": width**-0.5,
        "ffn/wi_1/kernel": width**-0.5,
        "ffn/wo/kernel": sizes.d_ff**-0.5,
        "decoder/logits/kernel": width**-0.5,
    }
    values: Values = {}
    for weight in weights(sizes):
        if weight.variable.endswith("/scale"):
            values[weight.variable] = np.ones(weight.shape, np.float32)
            continue
        (deviation,) = [d for end, d in deviations.items() if weight.variable.endswith(end)]
        values[weight.variable] = random.normal(0.0, deviation, weight.shape).astype(np.float32)
    return values


def trained_variables(model: SpanPretrainer, config: PipelineConfig) -> list[tf.Variable]:
    """Return all variables, in the model's order."""
    del config  # None of its settings freezes variables.
    return list(model.trainable_variables)
