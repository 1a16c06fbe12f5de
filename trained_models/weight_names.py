"""BERT's weights: their names and layouts here, in Hugging Face's models and in Google's BERT."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import numpy.typing as npt

from pipeline_config.schema import ModelConfig

# The head's name in tf-models' configurations and checkpoints, and the key of its logits.
NEXT_SENTENCE = "next_sentence"
WORD_EMBEDDINGS = "word_embeddings/embeddings"
OUTPUT_BIAS = "cls/predictions/output_bias/bias"


class Part(Enum):
    """The part of a pretrained BERT that a weight belongs to."""

    ENCODER = "encoder"
    POOLER = "pooler"
    MASKED_LM = "masked-LM head"
    NEXT_SENTENCE = "next-sentence head"


class Weight(NamedTuple):
    """One weight.

    :param variable: what the name of our variable, and of tf-models', ends with.
    :param tensor: its name in Hugging Face's ``BertForPreTraining``, without ``bert.``.
    :param shape: of the variable.
    :param matrix: the same with heads joined: [in, out] of a kernel, as in Google's BERT.
    """

    variable: str
    tensor: str
    shape: tuple[int, ...]
    matrix: tuple[int, ...]

    @property
    def is_kernel(self) -> bool:
        """Return whether it is a matrix that inputs are multiplied with."""
        return self.variable.endswith("/kernel")

    @property
    def is_by_token(self) -> bool:
        """Return whether it has a row for each token of the vocabulary."""
        return self.variable in {WORD_EMBEDDINGS, OUTPUT_BIAS}

    @property
    def part(self) -> Part:
        """Return what it belongs to."""
        for prefix, part in _PARTS.items():
            if self.tensor.startswith(prefix):
                return part
        return Part.ENCODER


_PARTS = {
    "pooler.": Part.POOLER,
    "cls.predictions.": Part.MASKED_LM,
    "cls.seq_relationship.": Part.NEXT_SENTENCE,
}


class Layout(Enum):
    """How a format stores weights. They differ in kernels, and in the biases of attention heads."""

    VARIABLE = "as the variable: tf-models"
    MATRIX = "[in, out]: Google's BERT"
    TRANSPOSED = "[out, in]: Hugging Face"

    def shape(self, weight: Weight) -> tuple[int, ...]:
        """Return the shape that a weight is stored with."""
        if self is Layout.VARIABLE:
            return weight.shape
        transposed = self is Layout.TRANSPOSED and weight.is_kernel
        return weight.matrix[::-1] if transposed else weight.matrix

    def load(self, weight: Weight, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the variable's value.

        :param stored: of the shape that :meth:`shape` tells, but for the number of tokens.
        """
        if self is Layout.VARIABLE or weight.is_by_token:
            return stored
        transposed = self is Layout.TRANSPOSED and weight.is_kernel
        return (stored.T if transposed else stored).reshape(weight.shape)

    def store(self, weight: Weight, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what is to be stored for a variable's value; undoes :meth:`load`."""
        if self is Layout.VARIABLE or weight.is_by_token:
            return value
        matrix = value.reshape(weight.matrix)
        return matrix.T if self is Layout.TRANSPOSED and weight.is_kernel else matrix


def weights(model: ModelConfig, *, next_sentence: bool) -> list[Weight]:
    """Return the weights of a model, from the embeddings up.

    :param next_sentence: whether there is a next-sentence head.
    """
    hidden = model.hidden_size
    found = [*_embeddings(model)]
    for number in range(model.num_hidden_layers):
        found += _layer(number, model)
    found += _dense("pooler_transform", "pooler.dense", (hidden, hidden))
    mine, theirs = "cls/predictions/transform", "cls.predictions.transform"
    found += _dense(f"{mine}/dense", f"{theirs}.dense", (hidden, hidden))
    found += _norm(f"{mine}/LayerNorm", f"{theirs}.LayerNorm", hidden)
    found.append(_alike(OUTPUT_BIAS, "cls.predictions.bias", (model.vocab_size,)))
    if next_sentence:
        found += _dense(f"{NEXT_SENTENCE}/logits", "cls.seq_relationship", (hidden, 2))
    return found


def _embeddings(model: ModelConfig) -> Iterator[Weight]:
    tables = {
        WORD_EMBEDDINGS: ("word_embeddings", model.vocab_size),
        "position_embedding/embeddings": ("position_embeddings", model.max_position_embeddings),
        "type_embeddings/embeddings": ("token_type_embeddings", model.type_vocab_size),
    }
    for variable, (name, rows) in tables.items():
        yield _alike(variable, f"embeddings.{name}.weight", (rows, model.hidden_size))
    yield from _norm("embeddings/layer_norm", "embeddings.LayerNorm", model.hidden_size)


def _layer(number: int, model: ModelConfig) -> Iterator[Weight]:
    hidden, inner, heads = model.hidden_size, model.intermediate_size, model.num_attention_heads
    mine, theirs, square = (
        f"transformer/layer_{number}",
        f"encoder.layer.{number}",
        (hidden, hidden),
    )
    by_head = (heads, hidden // heads)
    for name in ("query", "key", "value"):
        yield from _dense(
            f"{mine}/self_attention/{name}",
            f"{theirs}.attention.self.{name}",
            square,
            kernel=(hidden, *by_head),
            bias=by_head,
        )
    yield from _dense(
        f"{mine}/self_attention/attention_output",
        f"{theirs}.attention.output.dense",
        square,
        kernel=(*by_head, hidden),
    )
    yield from _norm(
        f"{mine}/self_attention_layer_norm", f"{theirs}.attention.output.LayerNorm", hidden
    )
    yield from _dense(f"{mine}/intermediate", f"{theirs}.intermediate.dense", (hidden, inner))
    yield from _dense(f"{mine}/output", f"{theirs}.output.dense", (inner, hidden))
    yield from _norm(f"{mine}/output_layer_norm", f"{theirs}.output.LayerNorm", hidden)


def _dense(
    variable: str,
    tensor: str,
    matrix: tuple[int, int],
    *,
    kernel: tuple[int, ...] | None = None,
    bias: tuple[int, ...] | None = None,
) -> list[Weight]:
    """Return kernel and bias; their own shapes, if any, are those of tf-models' attention."""
    vector = matrix[1:]
    return [
        Weight(f"{variable}/kernel", f"{tensor}.weight", kernel or matrix, matrix),
        Weight(f"{variable}/bias", f"{tensor}.bias", bias or vector, vector),
    ]


def _norm(variable: str, tensor: str, width: int) -> list[Weight]:
    return [
        _alike(f"{variable}/gamma", f"{tensor}.weight", (width,)),
        _alike(f"{variable}/beta", f"{tensor}.bias", (width,)),
    ]


def _alike(variable: str, tensor: str, shape: tuple[int, ...]) -> Weight:
    return Weight(variable, tensor, shape, shape)
