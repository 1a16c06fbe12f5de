"""RoBERTa: BERT's layers without segments, positions counted from the padding token.

https://huggingface.co/docs/transformers/model_doc/roberta
"""

from __future__ import annotations

from trained_models import flops
from trained_models.architectures.architecture import Architecture, HuggingFaceForm
from trained_models.architectures.bert.record import (
    ACTIVATIONS,
    INITIALIZER_RANGE,
    TENSORS,
)
from trained_models.architectures.encoder_weights import encoder_weights

# As in its published configurations.
NORM_EPSILON = 1e-5
PAD_ID = 1
# The first token's position; padding has that of the padding token, and the one before is unused.
FIRST_POSITION = PAD_ID + 1
# A table of one row, added everywhere: the library has it, though the paper's model has none.
SEGMENT_TYPES = 1

ROBERTA_TENSORS = TENSORS._replace(
    pooler=None,
    head=("lm_head.dense", "lm_head.layer_norm"),
    head_bias="lm_head.bias",
    next_sentence=None,
    first_position=FIRST_POSITION,
    segment_types=SEGMENT_TYPES,
)

# Without the number of segment types, which is always the same.
SETTINGS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "hidden_act",
)

ARCHITECTURE = Architecture(
    title="RoBERTa",
    weights=encoder_weights(ROBERTA_TENSORS),
    norm_epsilon=NORM_EPSILON,
    step_flops=flops.step_flops,
    # Its first classifier layer is as large as BERT's pooler.
    classifier_flops=flops.classifier_flops,
    hugging_face=HuggingFaceForm(
        model_type="roberta",
        masked_lm="RobertaForMaskedLM",
        encoder="RobertaModel",
        classifier="RobertaForSequenceClassification",
        prefix="roberta.",
        settings={name: name for name in SETTINGS},
        more={"max_position_embeddings": FIRST_POSITION},
        dropouts={name: name for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")},
        activations=ACTIVATIONS,
        fixed={
            "type_vocab_size": (SEGMENT_TYPES,),
            "pad_token_id": (PAD_ID,),
            "position_embedding_type": ("absolute",),
            "is_decoder": (False,),
            "add_cross_attention": (False,),
        },
        constants={
            "type_vocab_size": SEGMENT_TYPES,
            "initializer_range": INITIALIZER_RANGE,
            "layer_norm_eps": NORM_EPSILON,
            "bos_token_id": 0,
            "pad_token_id": PAD_ID,
            "eos_token_id": 2,
        },
        classifier_dropout="classifier_dropout",
        own_pooler="classifier.dense",
        classifier_layer="classifier.out_proj",
        head_prefix=("lm_head.",),
        tied={
            "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        # Published folders have a pooler, of random numbers: nothing has ever trained it.
        left_out=frozenset(
            {
                "embeddings.position_ids",
                "embeddings.token_type_ids",
                "pooler.dense.weight",
                "pooler.dense.bias",
            }
        ),
        inputs=("input_ids", "attention_mask"),
    ),
)
