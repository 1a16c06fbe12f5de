"""The unigram model: the loss of always predicting by how frequent each token is.

A first model has no predecessor to beat; it has to beat this. The frequencies are those of the
masked tokens of the training records: exactly what a model is trained to predict, so neither [CLS]
nor [SEP] nor padding has to be told apart. Rows that are written unmasked are masked as in the
first epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trained_models.record_sources import RecordSource
from training.input import examples
from training.input.masks import Masker
from training.input.records import RecordReader

ROWS_AT_ONCE = 4096


def training_counts(
    sources: list[RecordSource], vocab_size: int, load_masker: Callable[[], Masker]
) -> npt.NDArray[np.float64]:
    """Count the masked tokens of training records, of whichever kind.

    :param load_masker: asked for only if there are rows that are written unmasked.
    :returns: see :func:`token_counts`.
    """
    counts = np.zeros(vocab_size)
    for row_format, group in itertools.groupby(sources, key=lambda source: source.row_format):
        reader = RecordReader(list(group))
        masker = None if row_format.masked else load_masker()
        everything = np.arange(len(reader), dtype=np.int64)
        counts += token_counts(reader, everything, vocab_size, masker)
    return counts


def token_counts(
    reader: RecordReader,
    rows: npt.NDArray[np.int64],
    vocab_size: int,
    masker: Masker | None = None,
) -> npt.NDArray[np.float64]:
    """Count the masked tokens of some records.

    :param masker: for records that are written unmasked.
    :returns: the number of times each token is to be predicted, [vocab_size].
    """
    counts = np.zeros(vocab_size)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        serialized = reader.read(rows[begin : begin + ROWS_AT_ONCE])
        if masker is None:
            labels, weights = examples.parse_labels(serialized, reader.row_format)
        else:
            features = examples.parse(tf.constant(serialized), reader.row_format)
            features = masker(features, tf.zeros([len(serialized)], tf.int64))
            labels = features["masked_lm_ids"].numpy()
            weights = features["masked_lm_weights"].numpy()
        counts += np.bincount(labels.ravel(), weights=weights.ravel(), minlength=vocab_size)
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
