"""The weights of an encoder with a masked-LM head: our variables, and their names elsewhere.

All encoders here have tf-models' variables, so that checkpoints, heads and optimizers need not know
which architecture they hold. Architectures differ in what they lack, and in the names that the
library transformers gives to the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pipeline_config.training_schema import ModelConfig
from trained_models.weight_names import (
    NEXT_SENTENCE,
    OUTPUT_BIAS,
    WORD_EMBEDDINGS,
    Part,
    Weight,
    alike,
    dense,
    norm,
)


class TensorNames(NamedTuple):
    """Names of tensors in the library transformers, without ``.weight`` and ``.bias``.

    :param segments: name of the embeddings of segment types; None: there are none.
    :param layer: prefix of the names of a layer's tensors; ``{}`` is its number, from 0.
    :param parts: names of a layer's parts, by the names of our variables.
    :param pooler: name of the pooler; None: there is none.
    :param head: names of the dense layer and the layer norm of the masked-LM head.
    :param head_bias: the head's bias, whole name.
    :param next_sentence: name of the next-sentence head; None: it cannot be trained with one.
    :param first_position: rows of the position embeddings that are before the first token's.
    :param segment_types: number of segment types; None: as many as the configuration says.
    """

    layer: str
    parts: Mapping[str, str]
    head: tuple[str, str]
    head_bias: str
    segments: str | None = None
    pooler: str | None = None
    next_sentence: str | None = None
    first_position: int = 0
    segment_types: int | None = None


def encoder_weights(names: TensorNames) -> Callable[[ModelConfig, bool], list[Weight]]:
    """Return the function from sizes to weights, for an architecture's record."""

    def weights(model: ModelConfig, next_sentence: bool) -> list[Weight]:
        hidden = model.hidden_size
        found = [*_embeddings(model, names)]
        for number in range(model.num_hidden_layers):
            found += _layer(number, model, names)
        if names.pooler is not None:
            found += dense("pooler_transform", names.pooler, (hidden, hidden), Part.POOLER)
        mine, (transform, layer_norm) = "cls/predictions/transform", names.head
        found += dense(f"{mine}/dense", transform, (hidden, hidden), Part.MASKED_LM)
        found += norm(f"{mine}/LayerNorm", layer_norm, hidden, Part.MASKED_LM)
        found.append(alike(OUTPUT_BIAS, names.head_bias, (model.vocab_size,), Part.MASKED_LM))
        if next_sentence and names.next_sentence is not None:
            logits, part = f"{NEXT_SENTENCE}/logits", Part.NEXT_SENTENCE
            found += dense(logits, names.next_sentence, (hidden, 2), part)
        return found

    return weights


def _embeddings(model: ModelConfig, names: TensorNames) -> Iterator[Weight]:
    positions = model.max_position_embeddings + names.first_position
    tables = {
        WORD_EMBEDDINGS: ("word_embeddings", model.vocab_size),
        "position_embedding/embeddings": ("position_embeddings", positions),
    }
    if names.segments is not None:
        types = names.segment_types or model.type_vocab_size
        tables["type_embeddings/embeddings"] = (names.segments, types)
    for variable, (name, rows) in tables.items():
        yield alike(variable, f"embeddings.{name}.weight", (rows, model.hidden_size))
    yield from norm("embeddings/layer_norm", "embeddings.LayerNorm", model.hidden_size)


def _layer(number: int, model: ModelConfig, names: TensorNames) -> Iterator[Weight]:
    hidden, inner, heads = model.hidden_size, model.intermediate_size, model.num_attention_heads
    mine, theirs = f"transformer/layer_{number}", names.layer.format(number)
    square, by_head = (hidden, hidden), (heads, hidden // heads)

    def both(part: str) -> tuple[str, str]:
        return f"{mine}/{part}", f"{theirs}.{names.parts[part]}"

    for name in ("query", "key", "value"):
        in_heads = (hidden, *by_head)
        yield from dense(*both(f"self_attention/{name}"), square, kernel=in_heads, bias=by_head)
    yield from dense(*both("self_attention/attention_output"), square, kernel=(*by_head, hidden))
    yield from norm(*both("self_attention_layer_norm"), hidden)
    yield from dense(*both("intermediate"), (hidden, inner))
    yield from dense(*both("output"), (inner, hidden))
    yield from norm(*both("output_layer_norm"), hidden)
