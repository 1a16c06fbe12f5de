"""BERT from our configuration: tf-models' model around an encoder, ours or theirs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorflow as tf
import tf_keras
from official.nlp.modeling.layers import ClassificationHead
from official.nlp.modeling.models import BertPretrainerV2
from official.nlp.modeling.networks import BertEncoderV2

from pipeline_config import PipelineConfig
from pipeline_config.training_schema import ModelConfig
from trained_models.architectures.architecture import architecture_of
from trained_models.architectures.bert.record import INITIALIZER_RANGE
from trained_models.record_sources import predicts_next_sentence
from trained_models.weight_names import NEXT_SENTENCE
from training.architectures.activations import ACTIVATIONS
from training.architectures.bert.layers import Encoder
from training.architectures.models import arithmetic, has_next_sentence_head


def build_model(config: PipelineConfig) -> BertPretrainerV2:
    """Return the model with all its variables, random weights drawn from training.random_seed.

    Outputs: ``mlm_logits`` [R, P, vocab_size] for the masked positions and, with next-sentence
    prediction, ``next_sentence`` [R, 2], both in the arithmetic's type.
    """
    make_encoder = partial(Encoder, residual_dtype=config.training.residual_dtype)
    return assemble(config, make_encoder, ACTIVATIONS[config.model.hidden_act])


def assemble(
    config: PipelineConfig,
    make_encoder: Callable[..., BertEncoderV2],
    activation: Callable[[tf.Tensor], tf.Tensor],
) -> BertPretrainerV2:
    """Return the configured model around an encoder.

    :param make_encoder: makes the encoder; it takes the arguments of tf-models' encoder.
    :param activation: activation function of the encoder and of the masked-LM head.
    """
    tf_keras.utils.set_random_seed(config.training.random_seed)
    with arithmetic(config.training.mixed_precision_dtype):
        encoder = assemble_encoder(config.model, make_encoder, activation)
        model = BertPretrainerV2(
            encoder,
            mlm_activation=activation,
            mlm_initializer=initializer(),
            classification_heads=_heads(encoder) if predicts_next_sentence(config) else None,
            name="bert",
        )
        # The head has no variables before it is called once; restoring would silently skip it.
        model(_one_row(config))
        # tf-models hard-codes BERT's epsilon.
        model.masked_lm.layer_norm.epsilon = architecture_of(config.model).norm_epsilon
    return model


def build_plain(config: PipelineConfig) -> BertPretrainerV2:
    """Return the model of tf-models' own encoder and activation, its weights random."""

    def gelu(features: tf.Tensor) -> tf.Tensor:
        return tf_keras.activations.gelu(
            features, approximate=config.model.hidden_act == "gelu_new"
        )

    return assemble(config, BertEncoderV2, gelu)


def build_encoder(config: PipelineConfig) -> BertEncoderV2:
    """Return an encoder alone, which has its variables once it is called."""
    make_encoder = partial(Encoder, residual_dtype=config.training.residual_dtype)
    return assemble_encoder(config.model, make_encoder, ACTIVATIONS[config.model.hidden_act])


def assemble_encoder(
    settings: ModelConfig,
    make_encoder: Callable[..., BertEncoderV2],
    activation: Callable[[tf.Tensor], tf.Tensor],
) -> BertEncoderV2:
    """Return the configured encoder; its arguments are as for :func:`assemble`."""
    return make_encoder(
        vocab_size=settings.vocab_size,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_hidden_layers,
        num_attention_heads=settings.num_attention_heads,
        max_sequence_length=settings.max_position_embeddings,
        type_vocab_size=settings.type_vocab_size,
        inner_dim=settings.intermediate_size,
        inner_activation=activation,
        output_dropout=settings.hidden_dropout_prob,
        attention_dropout=settings.attention_probs_dropout_prob,
        initializer=initializer(),
        # A fixed name: variables are found by name in checkpoints.
        name="bert_encoder",
    )


def _heads(encoder: BertEncoderV2) -> list[ClassificationHead]:
    head = ClassificationHead(
        inner_dim=encoder.get_config()["hidden_size"],
        num_classes=2,
        initializer=initializer(),
        name=NEXT_SENTENCE,
    )
    # As in BERT, its first layer is the encoder's pooler. tf-models would give it one of its own
    # and leave the encoder's pooler, which every user of `pooled_output` gets, untrained.
    head.dense = encoder.pooler_layer
    return [head]


def initializer() -> tf_keras.initializers.Initializer:
    """Return the initializer of BERT's kernels and embeddings."""
    return tf_keras.initializers.TruncatedNormal(stddev=INITIALIZER_RANGE)


def _one_row(config: PipelineConfig) -> dict[str, tf.Tensor]:
    row = tf.zeros([1, config.masking.max_seq_length], tf.int32)
    slots = tf.zeros([1, config.masking.max_predictions_per_seq], tf.int32)
    return {
        "input_word_ids": row,
        "input_mask": tf.ones_like(row),
        "input_type_ids": row,
        "masked_lm_positions": slots,
    }


def trained_variables(model: BertPretrainerV2, config: PipelineConfig) -> list[tf.Variable]:
    """Return the variables that pretraining changes, in the model's order.

    These are all except those of the training.frozen_layers lowest layers, the embeddings below
    them, and an unused pooler: without next-sentence prediction it has no gradient.
    """
    encoder, frozen_layers = model.encoder_network, config.training.frozen_layers
    kept = [] if has_next_sentence_head(model) else list(encoder.pooler_layer.trainable_variables)
    if frozen_layers:
        # Everything in the encoder except the layers above, so that no embedding is forgotten.
        layers_above = [*encoder.transformer_layers[frozen_layers:], encoder.pooler_layer]
        above = {id(v) for layer in layers_above for v in layer.trainable_variables}
        kept += [v for v in encoder.trainable_variables if id(v) not in above]
    left_out = {id(variable) for variable in kept}
    return [v for v in model.trainable_variables if id(v) not in left_out]


def trained_without_pooler(model: BertPretrainerV2, config: PipelineConfig) -> list[tf.Variable]:
    """Return the variables that pretraining changes in a model whose encoder has no pooler."""
    encoder, frozen_layers = model.encoder_network, config.training.frozen_layers
    if not frozen_layers:
        return list(model.trainable_variables)
    layers_above = encoder.transformer_layers[frozen_layers:]
    above = {id(v) for layer in layers_above for v in layer.trainable_variables}
    kept = {id(v) for v in encoder.trainable_variables} - above
    return [v for v in model.trainable_variables if id(v) not in kept]
