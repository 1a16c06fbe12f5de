"""Models to fine-tune: our encoder with a classifier on its first token, or a classifier alone."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from training.architectures.models import architecture_of, arithmetic
from training.model.forward import INPUTS

CLASSIFIER = "classifier"
FEATURES = "features"


class Classifier(tf_keras.Model):
    """An encoder with dropout and a dense layer on its pooler.

    It is like ``BertForSequenceClassification`` of Hugging Face and ``BertClassifier`` of
    tf-models.

    :param pooler: pooling layer if the encoder has no pooler; otherwise None.
    :param classifier: the dense layer.
    """

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        pooler: tf_keras.layers.Layer | None,
        classifier: tf_keras.layers.Layer,
        dropout: float,
    ) -> None:
        super().__init__(name="bert_classifier")
        self.encoder_network = encoder
        self.own_pooler = pooler
        self.dropout = tf_keras.layers.Dropout(dropout)
        self.classifier = classifier

    @property
    def checkpoint_items(self) -> dict[str, Any]:
        """Return the parts under the keys by which tf-models looks for them."""
        return {"encoder": self.encoder_network}

    @property
    def pooler_layer(self) -> tf_keras.layers.Layer:
        """Return the layer that makes the features of a row."""
        return self.own_pooler or self.encoder_network.pooler_layer

    def call(self, inputs: dict[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Return logits, float32 [R, outputs].

        :param inputs: int32 [R, S] each, by the names of :data:`training.model.forward.INPUTS`.
        """
        encoded = self.encoder_network({name: inputs[name] for name in INPUTS}, training=training)
        if self.own_pooler is None:
            pooled = encoded["pooled_output"]
        else:
            pooled = self.own_pooler(encoded["sequence_output"][:, 0])
        logits: tf.Tensor = self.classifier(self.dropout(pooled, training=training))
        return logits


class Probe(tf_keras.Model):
    """A dense layer on the features of a frozen encoder.

    Features are standardized by their mean and standard deviation in the training split, so that
    one learning rate fits all encoders.
    """

    def __init__(self, width: int, classifier: tf_keras.layers.Layer, dropout: float) -> None:
        super().__init__(name="probe")
        self.mean = self._constant("mean", width, "zeros")
        self.scale = self._constant("scale", width, "ones")
        self.dropout = tf_keras.layers.Dropout(dropout)
        self.classifier = classifier

    def _constant(self, name: str, width: int, value: str) -> tf.Variable:
        return self.add_weight(name, [width], tf.float32, initializer=value, trainable=False)

    @property
    def checkpoint_items(self) -> dict[str, Any]:
        """Return nothing: tf-models has no such model."""
        return {}

    def call(self, inputs: dict[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Return logits, float32 [R, outputs].

        :param inputs: ``features`` float32 [R, H]; the mean of the last hidden states over tokens.
        """
        standard = (inputs[FEATURES] - self.mean) * self.scale
        logits: tf.Tensor = self.classifier(self.dropout(standard, training=training))
        return logits


def _dense(config: PipelineConfig, outputs: int) -> tf_keras.layers.Dense:
    # Always float32, whatever the encoder computes in: bfloat16 has only three digits, and
    # differences of logits are compared.
    return tf_keras.layers.Dense(
        outputs,
        kernel_initializer=architecture_of(config.model).initializer(),
        dtype="float32",
        name=CLASSIFIER,
    )


def build_classifier(config: PipelineConfig, outputs: int, dropout: float) -> Classifier:
    """Return a model with all its variables, drawn from training.random_seed.

    :param outputs: number of outputs of the dense layer: of labels, or 1 for a regression.
    """
    architecture = architecture_of(config.model)
    tf_keras.utils.set_random_seed(config.training.random_seed)
    with arithmetic(config.training.mixed_precision_dtype):
        row = dict.fromkeys(INPUTS, tf.zeros([1, 8], tf.int32))
        encoder = architecture.build_encoder(config)
        # Called before it is part of a model, so that its variables have the same names as in the
        # pretrained model.
        encoder(row)
        pooler = None if architecture.make_pooler is None else architecture.make_pooler(config)
        model = Classifier(encoder, pooler, _dense(config, outputs), dropout)
        model(row)
    return model


def build_probe(config: PipelineConfig, outputs: int, dropout: float) -> Probe:
    """Return a model with all its variables, drawn from training.random_seed."""
    tf_keras.utils.set_random_seed(config.training.random_seed)
    model = Probe(config.model.hidden_size, _dense(config, outputs), dropout)
    model({FEATURES: tf.zeros([1, config.model.hidden_size])})
    return model
