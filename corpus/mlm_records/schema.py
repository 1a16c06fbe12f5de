"""The features of a masked-LM record, named as in google-research/bert and tf-models.

A row has ``S = max_seq_length`` positions and ``P = max_predictions_per_seq`` prediction slots;
both are padded, positions with the vocabulary's padding token and slots with zeros, so every record
of a file has the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corpus.mlm_records.masking import MaskedRows


@dataclass(frozen=True)
class Feature:
    """One feature of a ``tf.train.Example``."""

    name: str
    length: Literal["S", "P", "1"]
    dtype: Literal["int64", "float32"]

    def size(self, *, max_seq_length: int, max_predictions_per_seq: int) -> int:
        """Return the number of values of this feature in one record."""
        return {"S": max_seq_length, "P": max_predictions_per_seq, "1": 1}[self.length]


_TOKENS = (
    Feature("input_ids", "S", "int64"),
    Feature("input_mask", "S", "int64"),
    Feature("segment_ids", "S", "int64"),
)
_PREDICTIONS = (
    Feature("masked_lm_positions", "P", "int64"),
    Feature("masked_lm_ids", "P", "int64"),
    Feature("masked_lm_weights", "P", "float32"),
)
# 1: the second segment comes from another document; 0: it follows the first.
_NEXT_SENTENCE = (Feature("next_sentence_labels", "1", "int64"),)
# Ours: which document the row comes from (its first one, if there are several), for scores by
# document. The bits of document_key, as a signed 64-bit integer.
_DOCUMENT = (Feature("document_id", "1", "int64"),)
# Ours: the row's number within its document. With the document it makes the key of its masks.
_ROW = (Feature("row_number", "1", "int64"),)

_ONE_BYTE = 128


def record_features(*, masked: bool, next_sentence: bool) -> tuple[Feature, ...]:
    """Return the features of the records of a file.

    :param masked: False for rows that the trainer masks: instead of predictions, they have their
        row number.
    :param next_sentence: whether they have labels for next-sentence prediction.
    """
    labels = _NEXT_SENTENCE if next_sentence else ()
    if masked:
        return (*_TOKENS, *_PREDICTIONS, *labels, *_DOCUMENT)
    return (*_TOKENS, *labels, *_DOCUMENT, *_ROW)


def feature_arrays(
    rows: MaskedRows | npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    documents: npt.NDArray[np.uint64],
    *,
    row_numbers: npt.NDArray[np.uint64] | None = None,
    first_lengths: npt.NDArray[np.int32] | None = None,
    next_sentence_labels: npt.NDArray[np.uint8] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return the values of every feature of R records, in the order of :func:`record_features`.

    Integers that are always below 128 are uint8, as they fill one byte of a record; which ones
    that are depends on S alone. In the record all integers are int64.

    :param rows: rows after masking, or, for records that the trainer masks, tokens, [R, S].
    :param lengths: real tokens of each row, shape [R].
    :param documents: :func:`corpus.mlm_records.document_key` of each row's document, shape [R].
    :param row_numbers: each row's number within its document, shape [R]; for unmasked records.
    :param first_lengths: tokens of the first segment with its [CLS] and [SEP], shape [R]; None if
        there is one segment.
    :param next_sentence_labels: 1 where the second segment is a random one, shape [R].
    """
    tokens = rows.input_ids if isinstance(rows, MaskedRows) else rows
    upto = np.tri(tokens.shape[1] + 1, tokens.shape[1], -1, np.uint8)
    input_mask = upto[lengths]
    first = input_mask if first_lengths is None else upto[first_lengths]
    arrays: dict[str, npt.NDArray[Any]] = {
        "input_ids": tokens,
        "input_mask": input_mask,
        "segment_ids": input_mask ^ first,
    }
    if isinstance(rows, MaskedRows):
        fits = tokens.shape[1] <= _ONE_BYTE
        arrays["masked_lm_positions"] = rows.positions.astype(np.uint8) if fits else rows.positions
        arrays["masked_lm_ids"] = rows.ids
        arrays["masked_lm_weights"] = rows.weights
    if next_sentence_labels is not None:
        arrays["next_sentence_labels"] = next_sentence_labels[:, None]
    arrays["document_id"] = documents.view(np.int64)[:, None]
    if row_numbers is not None:
        arrays["row_number"] = row_numbers.view(np.int64)[:, None]
    return arrays
