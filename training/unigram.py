"""The unigram model: the loss of always predicting by how frequent each token is.

A first model has no predecessor to beat; it has to beat this. The frequencies are those of the
masked tokens of the training records: exactly what a model is trained to predict, so neither [CLS]
nor [SEP] nor padding has to be told apart.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline_config import PipelineConfig
from training import data
from training.records import RecordReader

ROWS_AT_ONCE = 4096


def token_counts(
    reader: RecordReader, rows: npt.NDArray[np.int64], config: PipelineConfig
) -> npt.NDArray[np.float64]:
    """Count the masked tokens of some records.

    :returns: the number of times each token is to be predicted, [vocab_size].
    """
    counts = np.zeros(config.model.vocab_size)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        serialized = reader.read(rows[begin : begin + ROWS_AT_ONCE])
        labels, weights = data.parse_labels(serialized, config)
        counts += np.bincount(
            labels.ravel(), weights=weights.ravel(), minlength=config.model.vocab_size
        )
    return counts


def cross_entropy(
    train_counts: npt.NDArray[np.float64],
    validation_counts: npt.NDArray[np.float64],
    vocabulary_size: int,
) -> float:
    """Return the loss in nats per token of predicting by add-one smoothed training counts.

    :param train_counts: :func:`token_counts` of the training records, [vocab_size].
    :param validation_counts: the same of the held-out rows.
    :param vocabulary_size: real tokens; the model's embedding may have spare rows.
    """
    probabilities = (train_counts + 1.0) / (train_counts.sum() + vocabulary_size)
    return float(-(validation_counts @ np.log(probabilities)) / validation_counts.sum())
