"""Rules about what an architecture supports, and how it is pretrained."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator

from pipeline_config.row_shapes import FRAME, SENTINELS, row_shapes
from pipeline_config.schema import PipelineConfig


def _tokens_are_of_the_architecture(config: PipelineConfig) -> Iterator[str]:
    """RoBERTa counts positions from its vocabulary's padding token, T5 needs its sentinels."""
    kind, model = config.vocabulary.kind, config.model
    own = "bpe" if model.has_byte_tokens else "t5" if model.has_decoder else None
    if own != (kind if kind in {"bpe", "t5"} else None):
        yield (
            f"vocabulary.kind: {kind} is not what model.architecture={model.architecture} is used "
            f"with; set it to {own or 'wordpiece or sentencepiece'}."
        )
    if kind in {"bpe", "t5"} and config.vocabulary.do_lower_case:
        yield (
            f"vocabulary.do_lower_case: true has no meaning for vocabulary.kind={kind}, whose "
            "tokens are of the text as it is; set it to false."
        )


def _spans_are_of_the_architecture(config: PipelineConfig) -> Iterator[str]:
    """A model with a decoder, and no other, writes what sentinels stand for."""
    masking, model = config.masking, config.model
    if (masking.unit == "sentinel") != model.has_decoder:
        other = "sentinel" if model.has_decoder else "token, word or span"
        yield (
            f"masking.unit: {masking.unit} is not how model.architecture={model.architecture} is "
            f"pretrained; set it to {other}."
        )
    if masking.unit != "sentinel":
        return
    for prefix, length, _ in row_shapes(config):
        counts = masking.span_counts(length - FRAME)
        if counts.spans > SENTINELS:
            yield (
                f"masking.{prefix}max_seq_length: rows of {length} tokens have {counts.spans} "
                f"spans, and a vocabulary has {SENTINELS} sentinels; shorten the rows, or raise "
                "masking.mean_span_tokens."
            )
    if config.corpus.input_format == "tfrecord":
        yield (
            "corpus.input_format: rows of tokens that other programs have made are framed and "
            "masked as BERT's are, which masking.unit=sentinel cannot use; give text."
        )


def _activations_are_of_the_architecture(config: PipelineConfig) -> Iterator[str]:
    """T5 has ReLU or a gated GELU, and a width of heads; encoders have a GELU."""
    model = config.model
    possible = ("relu", "gelu_new") if model.has_decoder else ("gelu", "gelu_new")
    if model.hidden_act not in possible:
        yield (
            f"model.hidden_act: {model.hidden_act} is none of model.architecture="
            f"{model.architecture}; set it to {' or '.join(possible)}."
        )
    if model.attention_head_size is not None and not model.has_decoder:
        yield (
            f"model.attention_head_size: {model.attention_head_size} is of t5 alone; leave it "
            "empty, and heads share hidden_size evenly."
        )


def _decoders_have_what_they_can(config: PipelineConfig) -> Iterator[str]:
    """What is of encoders alone is not asked of T5."""
    if not config.model.has_decoder:
        return
    # By setting: the value it must have, and why.
    needed = {
        "model.attention_probs_dropout_prob": (0.0, "T5 has one rate, model.hidden_dropout_prob"),
        "model.init_encoder_only": (False, "T5 has no head that could begin anew"),
        "training.frozen_layers": (0, "two stacks have no lowest layers"),
        "training.residual_dtype": ("float32", "its layers do not take hidden states otherwise"),
        "promotion.probe_tasks": ([], "classifiers stand on encoders alone"),
    }
    for name, (value, why) in needed.items():
        found = operator.attrgetter(name)(config)
        if found != value:
            yield (
                f"{name}: {_shown(found)} with model.architecture=t5; {why}. Set it to "
                f"{_shown(value)}."
            )
    if config.optimizer.type == "amos":
        yield (
            "optimizer.type: amos needs to know how large each of a model's weights is, which of "
            "T5 is not known; use adamw or lamb."
        )
    if other := sorted(set(config.promotion.export_formats) - {"hugging_face"}):
        yield (
            f"promotion.export_formats: {', '.join(other)} is not made of a T5 of a lineage, only "
            "hugging_face. A SavedModel is made of a fine-tuned one."
        )


def _shown(value: object) -> str:
    return json.dumps(value)


ARCHITECTURE_RULES = (
    _tokens_are_of_the_architecture,
    _spans_are_of_the_architecture,
    _activations_are_of_the_architecture,
    _decoders_have_what_they_can,
)
