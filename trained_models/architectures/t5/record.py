"""T5: an encoder and a decoder of equally many layers, 1.0 and 1.1.

https://huggingface.co/docs/transformers/model_doc/t5
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NoReturn

from pipeline_config import PipelineConfig
from pipeline_config.row_shapes import longest_corrupted
from pipeline_config.training_schema import ModelConfig
from trained_models.architectures.architecture import Architecture, HuggingFaceForm
from trained_models.errors import UserError
from trained_models.flops import TRAINED
from trained_models.phases import Phase
from trained_models.text_to_text import weights as t5_weights
from trained_models.text_to_text.sizes import (
    CLASS,
    EPSILON,
    FIXED,
    Form,
    Sizes,
    forward_flops,
    sizes_in,
)
from trained_models.weight_names import Weight

FORMS: dict[str, Form] = {"relu": "1.0", "gelu_new": "1.1"}
"""Versions of T5 by ``model.hidden_act``."""

NO_CLASSIFIER = (
    "model.architecture is t5: classifiers stand on encoders alone. Fine-tune it from text to "
    "text, by text_to_text.init_checkpoint, with labels as targets."
)

# A lineage's model has no settings for these: they are the same in every published model.
_FIXED_SIZES = ("relative_attention_num_buckets", "relative_attention_max_distance")

# Names in ``config.json``; sizes that encoder and decoder share are listed once.
_SETTINGS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
    "hidden_act": "feed_forward_proj",
}


def sizes_of(model: ModelConfig) -> Sizes:
    """Return the sizes of a lineage's model, as text-to-text fine-tuning has them."""
    return Sizes(
        form=FORMS[model.hidden_act],
        vocab_size=model.vocab_size,
        d_model=model.hidden_size,
        d_kv=model.head_size,
        d_ff=model.intermediate_size,
        num_layers=model.num_hidden_layers,
        num_decoder_layers=model.num_hidden_layers,
        num_heads=model.num_attention_heads,
    )


def describe(uri: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the model that a ``config.json`` describes.

    :raises UserError: it is no T5 as it is built here, so there are no such settings.
    """
    sizes = sizes_in(content, uri)
    defaults = {field.name: field.default for field in fields(Sizes)}
    problems = [name for name in _FIXED_SIZES if getattr(sizes, name) != defaults[name]]
    if sizes.num_decoder_layers != sizes.num_layers:
        problems.append("num_decoder_layers")
    if problems:
        raise UserError(
            f"{uri}: {', '.join(problems)} is another than in the published T5. Such a model can "
            "be fine-tuned, but no lineage begins with it."
        )
    (activation,) = [name for name, form in FORMS.items() if form == sizes.form]
    is_shared = sizes.d_kv * sizes.num_heads == sizes.d_model
    return {
        "architecture": "t5",
        **{
            ours: getattr(sizes, theirs)
            for ours, theirs in _SETTINGS.items()
            if ours != "hidden_act"
        },
        "attention_head_size": None if is_shared else sizes.d_kv,
        "hidden_act": activation,
    }


def _weights(model: ModelConfig, next_sentence: bool) -> list[Weight]:
    del next_sentence  # There is no such head.
    return t5_weights.weights(sizes_of(model))


def _step_flops(config: PipelineConfig, phase: Phase) -> int:
    source = longest_corrupted(config.masking, phase.max_seq_length).source
    row = forward_flops(sizes_of(config.model), source, phase.max_predictions_per_seq)
    return TRAINED * phase.global_batch_size * row


def _no_classifier(*_: object) -> NoReturn:
    raise UserError(NO_CLASSIFIER)


def _tied(model: ModelConfig) -> Mapping[str, str]:
    return t5_weights.tied(sizes_of(model))


ARCHITECTURE = Architecture(
    title="T5",
    weights=_weights,
    norm_epsilon=EPSILON,
    step_flops=_step_flops,
    classifier_flops=_no_classifier,
    describe=describe,
    tied=_tied,
    hugging_face=HuggingFaceForm(
        model_type="t5",
        masked_lm=CLASS,
        encoder="T5EncoderModel",
        classifier="T5ForSequenceClassification",
        prefix="",
        settings=_SETTINGS,
        dropouts={"hidden_dropout_prob": "dropout_rate"},
        activations={"relu": "relu", "gated-gelu": "gelu_new"},
        fixed={},
        constants=FIXED,
        classifier_dropout="classifier_dropout",
        head_prefix=("decoder.",),
        tied={},
        left_out=t5_weights.LEFT_OUT,
        inputs=("input_ids", "attention_mask"),
    ),
)
