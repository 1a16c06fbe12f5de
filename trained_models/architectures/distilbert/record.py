"""DistilBERT: BERT's layers without segments and pooler, under names of its own.

https://huggingface.co/docs/transformers/model_doc/distilbert
"""

from __future__ import annotations

from trained_models import flops
from trained_models.architectures.architecture import Architecture, HuggingFaceForm
from trained_models.architectures.bert.record import (
    ACTIVATIONS,
    INITIALIZER_RANGE,
    NORM_EPSILON,
)
from trained_models.architectures.encoder_weights import TensorNames, encoder_weights

TENSORS = TensorNames(
    layer="transformer.layer.{}",
    parts={
        "self_attention/query": "attention.q_lin",
        "self_attention/key": "attention.k_lin",
        "self_attention/value": "attention.v_lin",
        "self_attention/attention_output": "attention.out_lin",
        "self_attention_layer_norm": "sa_layer_norm",
        "intermediate": "ffn.lin1",
        "output": "ffn.lin2",
        "output_layer_norm": "output_layer_norm",
    },
    head=("vocab_transform", "vocab_layer_norm"),
    head_bias="vocab_projector.bias",
)

ARCHITECTURE = Architecture(
    title="DistilBERT",
    weights=encoder_weights(TENSORS),
    norm_epsilon=NORM_EPSILON,
    step_flops=flops.step_flops,
    # Its first classifier layer is as large as BERT's pooler.
    classifier_flops=flops.classifier_flops,
    hugging_face=HuggingFaceForm(
        model_type="distilbert",
        masked_lm="DistilBertForMaskedLM",
        encoder="DistilBertModel",
        classifier="DistilBertForSequenceClassification",
        prefix="distilbert.",
        settings={
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "max_position_embeddings": "max_position_embeddings",
            "hidden_act": "activation",
        },
        dropouts={
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
        },
        activations=ACTIVATIONS,
        fixed={},
        constants={"initializer_range": INITIALIZER_RANGE, "pad_token_id": 0},
        classifier_dropout="seq_classif_dropout",
        own_pooler="pre_classifier",
        head_prefix=("vocab_",),
        tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
        left_out=frozenset({"embeddings.position_ids"}),
        inputs=("input_ids", "attention_mask"),
    ),
)
