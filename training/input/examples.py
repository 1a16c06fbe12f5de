"""Checks serialized records and parses them into tensors under the model's input names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from corpus.mlm_records.spans import restore_rows
from trained_models.errors import BadDataError
from trained_models.record_sources import RowFormat
from training.input.records import RecordReader

# The names in tf-models of the features that google-research/bert named.
MODEL_INPUTS = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
# The row of the corpus that a record is. The model does not use it, and TPUs take no int64.
IDENTITIES = ("document_id", "row_number")


def check_records(reader: RecordReader) -> None:
    """Check the first record of every file against the file's manifest.

    :raises BadDataError: it is no ``tf.train.Example``, or a feature has another length.
    """
    row_format = reader.row_format
    for path, serialized in reader.first_records():
        try:
            found = tf.train.Example.FromString(serialized).features.feature
        except Exception as error:
            raise BadDataError(f"{path}: its first record is not a tf.train.Example.") from error
        for feature in row_format.features:
            kind = "int64_list" if feature.dtype == "int64" else "float_list"
            length = len(getattr(found[feature.name], kind).value)
            wanted = row_format.sizes[feature.name]
            if length != wanted:
                raise BadDataError(
                    f"{path}: feature {feature.name!r} has {length} {feature.dtype} values; by its "
                    f"manifest it has {wanted} ({row_format}). Prepare the partition again."
                )


def parse(serialized: tf.Tensor, row_format: RowFormat) -> dict[str, tf.Tensor]:
    """Parse a batch of serialized records.

    :param serialized: string [R].
    :returns: by feature name, R rows of S, P or 1 values (``RowFormat.features``), as int32 or
        float32, which TPUs take; ``document_id`` and ``row_number`` stay int64.
    """
    sizes = row_format.sizes
    features = row_format.features
    spec = {f.name: tf.io.FixedLenFeature([sizes[f.name]], f.dtype) for f in features}
    parsed = tf.io.parse_example(serialized, spec)
    return {
        name: tf.cast(value, tf.int32)
        if value.dtype == tf.int64 and name not in IDENTITIES
        else value
        for name, value in parsed.items()
    }


def parse_document_ids(serialized: list[bytes]) -> npt.NDArray[np.int64]:
    """Return the document id of each serialized record, int64 [R]."""
    spec = {"document_id": tf.io.FixedLenFeature([1], tf.int64)}
    return tf.io.parse_example(serialized, spec)["document_id"].numpy()[:, 0]


def unmasked_ids(features: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int32]:
    """Return the tokens of rows as they were before masking, [R, S].

    :param features: of R rows, masked or not, as :func:`parse` returns them.
    """
    ids = features["input_ids"].copy()
    if "masked_lm_ids" in features:
        row, slot = np.nonzero(features["masked_lm_weights"])
        if not features["masked_lm_positions"][row, slot].all():
            # The first token of a row is never masked: position 0 means targets of spans.
            return restore_rows(
                ids,
                features["masked_lm_ids"],
                features["masked_lm_positions"],
                features["masked_lm_weights"],
                features["input_mask"].sum(axis=1),
            )
        ids[row, features["masked_lm_positions"][row, slot]] = features["masked_lm_ids"][row, slot]
    return ids


def parse_labels(
    serialized: list[bytes], row_format: RowFormat
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the masked tokens of serialized masked records and their weights, both [R, P]."""
    size = row_format.max_predictions_per_seq
    spec = {
        "masked_lm_ids": tf.io.FixedLenFeature([size], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([size], tf.float32),
    }
    parsed = tf.io.parse_example(serialized, spec)
    return parsed["masked_lm_ids"].numpy(), parsed["masked_lm_weights"].numpy()


def model_inputs(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the inputs and labels of the model under their names in tf-models."""
    return {
        MODEL_INPUTS.get(name, name): value
        for name, value in features.items()
        if name not in IDENTITIES
    }
