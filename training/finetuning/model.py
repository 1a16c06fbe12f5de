"""What is fine-tuned: our encoder with a classifier on its pooler, or a classifier alone."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from official.nlp.modeling.networks import BertEncoderV2

from pipeline_config import PipelineConfig
from training.model.bert import arithmetic, build_encoder, initializer
from training.model.forward import INPUTS

CLASSIFIER = "classifier"
FEATURES = "features"


class Classifier(tf_keras.Model):
    """An encoder, and on its pooler dropout and a dense layer, as in Hugging Face's
    ``BertForSequenceClassification`` and tf-models' ``BertClassifier``.

    :param outputs: of the dense layer: labels, or 1 of a regression.
    """

    def __init__(self, encoder: BertEncoderV2, outputs: int, dropout: float) -> None:
        super().__init__(name="bert_classifier")
        self.encoder_network = encoder
        self.dropout = tf_keras.layers.Dropout(dropout)
        self.classifier = _dense(outputs)

    @property
    def checkpoint_items(self) -> dict[str, Any]:
        """Return the parts under the keys by which tf-models looks for them."""
        return {"encoder": self.encoder_network}

    def call(self, inputs: dict[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Return logits, float32 [R, outputs].

        :param inputs: int32 [R, S] each, by the names of :data:`training.model.forward.INPUTS`.
        """
        pooled = self.encoder_network({name: inputs[name] for name in INPUTS}, training=training)[
            "pooled_output"
        ]
        logits: tf.Tensor = self.classifier(self.dropout(pooled, training=training))
        return logits


class Probe(tf_keras.Model):
    """A dense layer on the features of an encoder that stays as it is.

    Features are standardized by the mean and deviation that they have in the training split, so
    that one learning rate fits all encoders.
    """

    def __init__(self, width: int, outputs: int, dropout: float) -> None:
        super().__init__(name="probe")
        self.mean = self._constant("mean", width, "zeros")
        self.scale = self._constant("scale", width, "ones")
        self.dropout = tf_keras.layers.Dropout(dropout)
        self.classifier = _dense(outputs)

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


def _dense(outputs: int) -> tf_keras.layers.Dense:
    # In float32 whatever the encoder computes in: bfloat16 has three digits, and what is compared
    # are differences of logits.
    return tf_keras.layers.Dense(
        outputs, kernel_initializer=initializer(), dtype="float32", name=CLASSIFIER
    )


def build_classifier(config: PipelineConfig, outputs: int, dropout: float) -> Classifier:
    """Return a model with all its variables, drawn from training.random_seed."""
    tf_keras.utils.set_random_seed(config.training.random_seed)
    with arithmetic(config.training.mixed_precision_dtype):
        row = dict.fromkeys(INPUTS, tf.zeros([1, 8], tf.int32))
        encoder = build_encoder(config)
        # Before it is part of a model, so that its variables have the names that they have in the
        # pretrained one.
        encoder(row)
        model = Classifier(encoder, outputs, dropout)
        model(row)
    return model


def build_probe(config: PipelineConfig, outputs: int, dropout: float) -> Probe:
    """Return a model with all its variables, drawn from training.random_seed."""
    tf_keras.utils.set_random_seed(config.training.random_seed)
    model = Probe(config.model.hidden_size, outputs, dropout)
    model({FEATURES: tf.zeros([1, config.model.hidden_size])})
    return model
