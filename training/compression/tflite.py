"""Writes a classifier as a TensorFlow Lite model, and counts such a file's weights by type."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from pipeline_config.compression import FLOAT16, FLOAT32
from trained_models.errors import BadDataError
from training.architectures.activations import gelu_by_name
from training.finetuning.exporting.exporter import TextModel
from training.finetuning.exporting.functions import TOKENIZE, make_logits
from training.finetuning.exporting.served import DESCRIPTION, MODEL, ROWS
from training.model.forward import INPUTS

_TYPES = {0: "float32", 1: "float16", 9: "int8"}
"""Names of the types that weights can have, by their number in the file's schema."""


def write(folder: Path, model: TextModel, step: str) -> None:
    """Write the folder that :class:`training.finetuning.exporting.served.LiteModel` reads.

    :param folder: to be created.
    :param step: one of :data:`pipeline_config.compression.TFLITE`.
    """
    folder.mkdir()
    (folder / MODEL).write_bytes(convert(model, step))
    functions = model.functions()
    signatures = {ROWS: functions.by_name[TOKENIZE]}
    holder = tf.Module()
    # A module saves the variables it holds: here only those of the tokenizer's tables.
    holder.rows = functions.rows
    holder.tokenize = signatures[ROWS]
    tf.saved_model.save(holder, str(folder / ROWS), signatures=signatures)
    described = {
        "kind": model.trained.kind,
        "labels": model.trained.labels,
        "max_seq_length": model.chosen.manifest.max_seq_length,
        "inputs": sorted(INPUTS),
    }
    (folder / DESCRIPTION).write_text(json.dumps(described, ensure_ascii=False), "utf-8")


def convert(model: TextModel, step: str) -> bytes:
    """Return the file of a model from one row, int32 [1, S] each, to ``logits`` float32 [1, L].

    S is the task's length: for rows of any length the converter skips steps that it knows.
    """
    trained = model.trained
    logits = make_logits(trained.model, None)
    row = [1, model.chosen.manifest.max_seq_length]

    def call(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": logits(dict(zip(INPUTS, inputs, strict=True)))}

    signature = [tf.TensorSpec(row, tf.int32, name=name) for name in INPUTS]
    with gelu_by_name():
        traced = tf.function(call, input_signature=signature).get_concrete_function()
    # The bare variables: given a Keras model, the converter would needlessly trace every layer.
    holder = tf.Module()
    holder.variables_of_model = trained.model.variables
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced], holder)
    if step != FLOAT32:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if step == FLOAT16:
        converter.target_spec.supported_types = [tf.float16]
    converted: bytes = converter.convert()
    return converted


def weights_by_type(path: Path) -> dict[str, int]:
    """Return the number of weights of each type in a file: constants of more than one number.

    :raises BadDataError: the file is no TensorFlow Lite model, or it is damaged.
    """
    content = path.read_bytes()
    if content[4:8] != b"TFL3":
        raise BadDataError(f"{path.name} is no TensorFlow Lite model: its identifier is missing.")
    try:
        model = schema.ModelT.InitFromPackedBuf(content, 0)
        found: Counter[str] = Counter()
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                data = model.buffers[tensor.buffer].data
                if data is not None and len(data) and tensor.type in _TYPES:
                    size = math.prod(int(n) for n in np.atleast_1d(tensor.shape))
                    found[_TYPES[tensor.type]] += size if size > 1 else 0
    except Exception as error:
        # The reader raises many kinds of errors for corrupt bytes.
        raise BadDataError(f"{path.name} is a damaged TensorFlow Lite model: {error}.") from error
    return dict(found)
