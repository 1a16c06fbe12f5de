"""Adapts tf-models' T5 to the trainer: tracked by Keras, with resumable dropout.

tf-models' own ``__call__`` is the forward pass of training. Decoding is in
:mod:`training.text_to_text.decoding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from official.nlp.modeling.models import t5

from trained_models.text_to_text.sizes import PAD, SOURCE, TARGET, Sizes
from trained_models.text_to_text.weights import Values, weights
from training.architectures.models import named_variables

# tf-models applies this dropout twice: to the input of the decoder's layers and to their output.
_TWICE = "target_dropout"

NO_WEIGHT_DECAY = ("layer_norm", "rel_embedding")
"""Expressions for the names of variables that do not decay: scales and position biases."""

_ACTIVATIONS = {"1.0": ("relu",), "1.1": ("gelu", "linear")}


class TextToText(tf_keras.Model):
    """A T5 model with all its variables, drawn at random until they are set.

    :param sizes: sizes and form of the model.
    :param dropout_rate: used everywhere T5 has dropout.
    :param dtype: type of the computation: ``float32`` or ``bfloat16``; variables are float32.
    """

    def __init__(self, sizes: Sizes, dropout_rate: float = 0.0, dtype: str = "float32") -> None:
        super().__init__(name="text_to_text")
        self.sizes = sizes
        parameters = t5.T5TransformerParams(
            num_layers=sizes.num_layers,
            num_decoder_layers=sizes.num_decoder_layers,
            d_model=sizes.d_model,
            d_kv=sizes.d_kv,
            d_ff=sizes.d_ff,
            num_heads=sizes.num_heads,
            vocab_size=sizes.vocab_size,
            relative_attention_num_buckets=sizes.relative_attention_num_buckets,
            relative_attention_max_distance=sizes.relative_attention_max_distance,
            shared_embedding=True,
            ffn_activations=_ACTIVATIONS[sizes.form],
            logits_via_embedding=not sizes.has_own_output,
            one_hot_embedding=False,
        )
        self.transformer = t5.T5Transformer(parameters, compute_dtype=tf.as_dtype(dtype))
        self._drops = _replace_dropouts(self.transformer, dropout_rate)

    @property
    def checkpoint_items(self) -> dict[str, Any]:
        """Return nothing: the model itself is in each checkpoint."""
        return {}

    def call(self, inputs: dict[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Return the logits of each target token given the previous ones, float32 [R, T, V].

        :param inputs: by the names of :data:`SOURCE` and :data:`TARGET`.
        """
        for drop in self._drops:
            drop.begin()
        targets = inputs[TARGET]
        outputs = self.transformer(
            encoder_input_tokens=inputs[SOURCE],
            decoder_target_tokens=targets,
            decoder_input_tokens=tf.pad(targets[:, :-1], [[0, 0], [1, 0]], constant_values=PAD),
            training=bool(training),
        )
        return tf.cast(outputs["logits"], tf.float32)

    def set_weights_by_name(self, values: Values) -> None:
        """Set all weights.

        :param values: by name suffix of the variables; all of :func:`weights`.
        """
        for name, variable in self.variables_by_name().items():
            variable.assign(values[name])

    def variables_by_name(self) -> dict[str, tf.Variable]:
        """Return the variables by their name suffixes as in :func:`weights`."""
        known = {weight.variable for weight in weights(self.sizes)}
        # All are below the one transformer.
        found = {name.split("/", 1)[1]: v for name, v in named_variables(self).items()}
        if found.keys() != known:
            raise ValueError(f"tf-models names its variables otherwise: {found.keys() ^ known}")
        return found

    def values(self) -> Mapping[str, npt.NDArray[np.float32]]:
        """Return all weights by name suffix of their variables."""
        return {name: variable.numpy() for name, variable in self.variables_by_name().items()}


class _Dropout(tf.Module):
    """tf-models' dropout made of Keras layers, whose masks the trainer makes resumable.

    :param places: number of calls in a forward pass; each call has its own masks.
    """

    def __init__(self, rate: float, places: int) -> None:
        super().__init__()
        self._layers = [tf_keras.layers.Dropout(rate) for _ in range(places if rate else 0)]
        self._place = 0

    def begin(self) -> None:
        """Begin a forward pass."""
        self._place = 0

    def __call__(self, x: tf.Tensor, training: bool, noise_shape: Any = None) -> tf.Tensor:
        if not (training and self._layers):
            return x
        layer = self._layers[self._place % len(self._layers)]
        self._place += 1
        # Called like Keras' layer does, but that has one noise shape for all calls.
        return layer._random_generator.dropout(x, layer.rate, noise_shape=noise_shape)


def _replace_dropouts(transformer: tf.Module, rate: float) -> list[_Dropout]:
    """Replace each dropout of tf-models by ours; return the new ones."""
    replaced = []
    for module, name in list(_dropouts(transformer)):
        drop = _Dropout(rate, places=2 if name == _TWICE else 1)
        setattr(module, name, drop)
        replaced.append(drop)
    return replaced


def _dropouts(transformer: tf.Module) -> Iterator[tuple[tf.Module, str]]:
    for module in (transformer, *transformer.submodules):
        for name, value in vars(module).items():
            if isinstance(value, t5.Dropout):
                yield module, name
