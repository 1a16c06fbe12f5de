"""BERT: its names in the library transformers, and its constants.

https://huggingface.co/docs/transformers/model_doc/bert
"""

from __future__ import annotations

from trained_models import flops
from trained_models.architectures.architecture import Architecture, HuggingFaceForm
from trained_models.architectures.encoder_weights import TensorNames, encoder_weights

# As in tf-models and in Google's BERT, and in its published configurations.
NORM_EPSILON = 1e-12
INITIALIZER_RANGE = 0.02
# "gelu" is the exact form in the library transformers, the tanh form in Google's.
# https://github.com/huggingface/transformers/blob/main/src/transformers/activations.py
TANH_FORMS = dict.fromkeys(
    ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"), "gelu_new"
)
ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu"} | TANH_FORMS

TENSORS = TensorNames(
    segments="token_type_embeddings",
    layer="encoder.layer.{}",
    parts={
        "self_attention/query": "attention.self.query",
        "self_attention/key": "attention.self.key",
        "self_attention/value": "attention.self.value",
        "self_attention/attention_output": "attention.output.dense",
        "self_attention_layer_norm": "attention.output.LayerNorm",
        "intermediate": "intermediate.dense",
        "output": "output.dense",
        "output_layer_norm": "output.LayerNorm",
    },
    pooler="pooler.dense",
    head=("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    head_bias="cls.predictions.bias",
    next_sentence="cls.seq_relationship",
)

# Names as in bert_config.json, which are ours, too.
SETTINGS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "hidden_act",
)

ARCHITECTURE = Architecture(
    title="BERT",
    weights=encoder_weights(TENSORS),
    norm_epsilon=NORM_EPSILON,
    step_flops=flops.step_flops,
    classifier_flops=flops.classifier_flops,
    hugging_face=HuggingFaceForm(
        model_type="bert",
        masked_lm="BertForMaskedLM",
        encoder="BertModel",
        classifier="BertForSequenceClassification",
        prefix="bert.",
        settings={name: name for name in SETTINGS},
        dropouts={name: name for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")},
        activations=ACTIVATIONS,
        fixed={
            "position_embedding_type": ("absolute",),
            "is_decoder": (False,),
            "add_cross_attention": (False,),
        },
        constants={
            "initializer_range": INITIALIZER_RANGE,
            "layer_norm_eps": NORM_EPSILON,
            "pad_token_id": 0,
        },
        classifier_dropout="classifier_dropout",
        head_prefix=("cls.predictions.",),
        tied={
            "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        # Numbers of positions and segments, which some versions of the library stored.
        left_out=frozenset({"embeddings.position_ids", "embeddings.token_type_ids"}),
        inputs=("input_ids", "token_type_ids", "attention_mask"),
    ),
)
