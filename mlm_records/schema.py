"""The features of a masked-LM record, named as in google-research/bert and tf-models.

A row has ``S = max_seq_length`` positions and ``P = max_predictions_per_seq`` prediction slots;
both are padded with zeros, so every record of a data set has the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mlm_records.masking import MaskedRows


@dataclass(frozen=True)
class Feature:
    """One feature of a ``tf.train.Example``."""

    name: str
    length: Literal["S", "P", "1"]
    dtype: Literal["int64", "float32"]

    def size(self, *, max_seq_length: int, max_predictions_per_seq: int) -> int:
        """Return the number of values of this feature in one record."""
        return {"S": max_seq_length, "P": max_predictions_per_seq, "1": 1}[self.length]


FEATURES = (
    Feature("input_ids", "S", "int64"),
    Feature("input_mask", "S", "int64"),
    Feature("segment_ids", "S", "int64"),
    Feature("masked_lm_positions", "P", "int64"),
    Feature("masked_lm_ids", "P", "int64"),
    Feature("masked_lm_weights", "P", "float32"),
    # Ours: which document the row comes from, for scores by document. The bits of document_key,
    # as a signed 64-bit integer.
    Feature("document_id", "1", "int64"),
)


def feature_arrays(
    masked: MaskedRows, lengths: npt.NDArray[np.int32], documents: npt.NDArray[np.uint64]
) -> dict[str, npt.NDArray[np.int64] | npt.NDArray[np.float32]]:
    """Return the values of every feature for a batch of R rows with one segment.

    :param masked: the rows after masking.
    :param lengths: real tokens of each row, shape [R].
    :param documents: :func:`mlm_records.document_key` of each row's document, shape [R].
    """
    rows, width = masked.input_ids.shape
    return {
        "input_ids": masked.input_ids.astype(np.int64),
        "input_mask": (np.arange(width) < lengths[:, None]).astype(np.int64),
        "segment_ids": np.zeros((rows, width), np.int64),
        "masked_lm_positions": masked.positions.astype(np.int64),
        "masked_lm_ids": masked.ids.astype(np.int64),
        "masked_lm_weights": masked.weights,
        "document_id": documents.view(np.int64)[:, None],
    }
