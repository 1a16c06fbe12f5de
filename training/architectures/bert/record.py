"""Describes BERT to the trainer; names and scales hold for all encoders of tf-models' parts."""

from __future__ import annotations

import math

import tensorflow as tf

from training.architectures.bert import model
from training.architectures.models import Architecture

# As in google-research/bert optimization.py.
NO_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


def scale(variable: tf.Variable) -> float:
    """Return eta of a variable of tf-models' BERT.

    LayerNorm scale 1, bias 1/2, embedding sqrt(2 / width), feed-forward output sqrt(2 / inputs),
    other kernels sqrt(1 / inputs). Source: arXiv 2210.11693, section 4 and appendix A.
    """
    name, shape = _plain_name(variable), variable.shape
    if name.endswith("gamma"):
        return 1.0
    if name.endswith(("bias", "beta")):
        return 0.5
    if name.endswith("embeddings"):
        return math.sqrt(2.0 / shape[-1])
    inputs = math.prod(shape[axis] for axis in averaged_axes(variable))
    numerator = 2.0 if name.endswith("/output/kernel") else 1.0
    return math.sqrt(numerator / inputs)


def averaged_axes(variable: tf.Variable) -> list[int]:
    """Return the axes over which the statistics of a variable of tf-models' BERT are averaged.

    These are the input axes of a kernel, the width of an embedding, all axes of a vector. Kernels
    of attention have an axis for the heads: query, key and value [H, A, D], output [A, D, H].
    """
    name, rank = _plain_name(variable), len(variable.shape)
    is_vector = name.endswith(("gamma", "beta", "bias"))
    if is_vector:
        return list(range(rank))
    if name.endswith("embeddings"):
        return [rank - 1]
    return [0, 1] if name.endswith("attention_output/kernel") else [0]


def _plain_name(variable: tf.Variable) -> str:
    name: str = variable.name
    return name.removesuffix(":0")


ARCHITECTURE = Architecture(
    build_model=model.build_model,
    build_encoder=model.build_encoder,
    build_plain=model.build_plain,
    trained_variables=model.trained_variables,
    make_pooler=None,
    initializer=model.initializer,
    no_weight_decay=NO_WEIGHT_DECAY,
    scale=scale,
    averaged_axes=averaged_axes,
)
