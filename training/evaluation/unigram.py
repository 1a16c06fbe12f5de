"""The unigram baseline: the loss of always predicting by the frequency of each token.

A first model has no predecessor to beat; it has to beat this. The frequencies are those of maskable
tokens in the training text, as a model is trained to predict those: [CLS], [SEP], [UNK] and padding
do not count. The data job has counted them, shard by shard. Targets of T5's spans also have
sentinels, which :func:`with_targets_own` counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from corpus.arrays import load_npz
from pipeline_store import uris
from trained_models.record_sources import RecordSource
from training.input import examples
from training.input.records import RecordReader
from training.runtime.phases import each

ROWS_AT_ONCE = 4096
_READS_AT_ONCE = 16

Counts = npt.NDArray[np.float64]


def training_counts(
    sources: Sequence[RecordSource], maskable: npt.NDArray[np.bool_], vocab_size: int
) -> Counts:
    """Count the maskable tokens of the training text.

    For a shard that the data job made before it counted tokens, the records are read, and each of
    the ``masking.dupe_factor`` copies of a row counts.

    :param maskable: by token of the vocabulary, :class:`corpus.mlm_records.TokenTable`.
    :returns: the number of times each token is in the text, [vocab_size].
    :raises FormatError: a file of counts is missing or damaged.
    """
    counts = np.zeros(vocab_size)
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        shards = pool.map(partial(_shard_counts, vocab_size=vocab_size), sources)
        for found in each(shards):
            counts[: len(found)] += found
    counts[: len(maskable)] *= maskable
    return counts


def held_out_counts(reader: RecordReader, rows: npt.NDArray[np.int64], vocab_size: int) -> Counts:
    """Count the masked tokens of held-out records.

    :returns: the number of times each token is to be predicted, [vocab_size].
    """

    counts = np.zeros(vocab_size)
    for serialized in _batches(reader, rows):
        labels, weights = examples.parse_labels(serialized, reader.row_format)
        counts += np.bincount(labels.ravel(), weights.ravel(), vocab_size)
    return counts


def _shard_counts(source: RecordSource, vocab_size: int) -> Counts:
    """Return the counts of all tokens of a shard, maskable or not, [vocab_size] or less."""
    if source.token_counts is not None:
        uri = uris.join(source.folder, source.token_counts.path)
        return load_npz(uri, source.token_counts)["counts"].astype(np.float64)
    reader, counts = RecordReader([source]), np.zeros(vocab_size)
    for serialized in _batches(reader, np.arange(len(reader), dtype=np.int64)):
        parsed = examples.parse(tf.constant(serialized), reader.row_format)
        ids = examples.unmasked_ids({name: value.numpy() for name, value in parsed.items()})
        counts += np.bincount(ids.ravel(), minlength=vocab_size)
    return counts


def _batches(reader: RecordReader, rows: npt.NDArray[np.int64]) -> Iterator[list[bytes]]:
    return (
        reader.read(rows[begin : begin + ROWS_AT_ONCE])
        for begin in range(0, len(rows), ROWS_AT_ONCE)
    )


def with_targets_own(
    train_counts: Counts, validation_counts: Counts, maskable: npt.NDArray[np.bool_]
) -> Counts:
    """Return training counts plus those of the non-text tokens of targets: sentinels, ``</s>``.

    The training text has none of them. They get the share that they have in the held-out targets,
    which is the best that a unigram model could know.

    :param train_counts: :func:`training_counts`, [vocab_size].
    :param validation_counts: :func:`held_out_counts`, [vocab_size].
    :param maskable: as for :func:`training_counts`.
    """
    is_text = np.zeros(len(train_counts), bool)
    is_text[: len(maskable)] = maskable
    own = np.where(is_text, 0.0, validation_counts)
    text = validation_counts[is_text].sum()
    return train_counts + own * (train_counts.sum() / max(text, 1.0))


def cross_entropy(train_counts: Counts, validation_counts: Counts, vocabulary_size: int) -> float:
    """Return the loss in nats per token of predicting by add-one smoothed training counts.

    :param train_counts: :func:`training_counts`, [vocab_size].
    :param validation_counts: :func:`held_out_counts`, [vocab_size].
    :param vocabulary_size: real tokens; the model's embedding may have spare rows.
    """
    probabilities = (train_counts + 1.0) / (train_counts.sum() + vocabulary_size)
    return float(-(validation_counts @ np.log(probabilities)) / validation_counts.sum())
