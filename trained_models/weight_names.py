"""Weights of a model: their names, and their layouts here and in the formats of others."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import numpy.typing as npt

# Names of variables that are the same in all encoders here. The head's is its name in tf-models'
# configurations and checkpoints, too, and the key of its logits.
NEXT_SENTENCE = "next_sentence"
WORD_EMBEDDINGS = "word_embeddings/embeddings"
# T5's word embeddings, in which its decoder looks tokens up, too.
SHARED_EMBEDDING = "shared/embedding"
OUTPUT_BIAS = "cls/predictions/output_bias/bias"


class Part(Enum):
    """The part of a pretrained model that a weight belongs to."""

    ENCODER = "encoder"
    POOLER = "pooler"
    MASKED_LM = "masked-LM head"
    NEXT_SENTENCE = "next-sentence head"


class Weight(NamedTuple):
    """One weight.

    :param variable: the end of the name of our variable, and of tf-models'.
    :param tensor: its name in Hugging Face's model, without the prefix of an encoder's tensors.
    :param shape: shape of the variable.
    :param matrix: the same with heads joined: [in, out] for a kernel, as in Google's BERT.
    """

    variable: str
    tensor: str
    shape: tuple[int, ...]
    matrix: tuple[int, ...]
    part: Part = Part.ENCODER

    @property
    def is_kernel(self) -> bool:
        """Return whether it is a matrix that inputs are multiplied with."""
        return self.variable.endswith("/kernel")

    @property
    def is_embedding(self) -> bool:
        """Return whether it is the table in which tokens are looked up."""
        return self.variable in {WORD_EMBEDDINGS, SHARED_EMBEDDING}

    @property
    def is_by_token(self) -> bool:
        """Return whether it has a row for each token, which is found by the token.

        T5's vocabulary never changes, and its tables are taken as they are.
        """
        return self.variable in {WORD_EMBEDDINGS, OUTPUT_BIAS}


class Layout(Enum):
    """Layouts of stored weights. They differ in kernels, and in the biases of attention heads."""

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

        :param stored: of the shape by :meth:`shape`, except for the number of tokens.
        """
        if self is Layout.VARIABLE or weight.is_by_token:
            return stored
        transposed = self is Layout.TRANSPOSED and weight.is_kernel
        return (stored.T if transposed else stored).reshape(weight.shape)

    def store(self, weight: Weight, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the stored form of a variable's value; undoes :meth:`load`."""
        if self is Layout.VARIABLE or weight.is_by_token:
            return value
        matrix = value.reshape(weight.matrix)
        return matrix.T if self is Layout.TRANSPOSED and weight.is_kernel else matrix


def dense(
    variable: str,
    tensor: str,
    matrix: tuple[int, int],
    part: Part = Part.ENCODER,
    *,
    kernel: tuple[int, ...] | None = None,
    bias: tuple[int, ...] | None = None,
) -> list[Weight]:
    """Return kernel and bias of a dense layer.

    :param matrix: [in, out].
    :param kernel: its shape as a variable, if that differs, as in tf-models' attention.
    :param bias: the same for the bias.
    """
    vector = matrix[1:]
    return [
        Weight(f"{variable}/kernel", f"{tensor}.weight", kernel or matrix, matrix, part),
        Weight(f"{variable}/bias", f"{tensor}.bias", bias or vector, vector, part),
    ]


def norm(variable: str, tensor: str, width: int, part: Part = Part.ENCODER) -> list[Weight]:
    """Return scale and shift of a layer norm."""
    return [
        alike(f"{variable}/gamma", f"{tensor}.weight", (width,), part),
        alike(f"{variable}/beta", f"{tensor}.bias", (width,), part),
    ]


def alike(variable: str, tensor: str, shape: tuple[int, ...], part: Part = Part.ENCODER) -> Weight:
    """Return a weight that every format stores as it is."""
    return Weight(variable, tensor, shape, shape, part)
