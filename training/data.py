"""Batches as a pure function of (seed, step): the input position is the step number, nothing else.

A resumed training therefore sees exactly the records that an uninterrupted one would have seen,
and, where masks are drawn on the fly, under exactly the same masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline_config import PipelineConfig
from training import examples
from training.masks import Masker
from training.records import RecordReader

PREFETCHED_BATCHES = 4


class Positions(NamedTuple):
    """Places in the endless list of epochs, int64 [global_batch_size] each."""

    numbers: tf.Tensor
    epochs: tf.Tensor


def positions(step: tf.Tensor, *, seed: int, global_batch_size: int, num_records: int) -> Positions:
    """Return the records of one step, and the epoch in which each is seen.

    Every epoch is a permutation of its own of all records.

    :param step: int64 scalar, counted from 0.
    :returns: record numbers and epochs, from 0; a batch may span epochs.
    """
    position = step * global_batch_size + tf.range(global_batch_size, dtype=tf.int64)
    epoch, within = position // num_records, position % num_records
    last = tf.constant(num_records - 1, tf.int64)

    numbers = within
    for offset in range((global_batch_size - 1) // num_records + 2):
        seeds = tf.stack([tf.constant(seed, tf.int64), epoch[0] + offset])
        shuffled = tf.random.experimental.index_shuffle(within, seed=seeds, max_index=last)
        numbers = tf.where(epoch == epoch[0] + offset, shuffled, numbers)
    return Positions(numbers, epoch)


def training_dataset(
    reader: RecordReader,
    config: PipelineConfig,
    first_step: int,
    strategy: tf.distribute.Strategy,
    masker: Masker | None = None,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Return the batches from one step to the end of training.

    Each element is a tuple of one: a replica's share of the batch, as
    :func:`training.examples.model_inputs` returns it. Neither the order of records nor their masks
    depend on the number of replicas.

    :param masker: masks the rows of each epoch; for records that are written unmasked.
    """
    training = config.training

    def positions_of(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        numbers, epochs = positions(
            step,
            seed=training.random_seed,
            global_batch_size=training.global_batch_size,
            num_records=len(reader),
        )
        return numbers, epochs

    def read(numbers: tf.Tensor, epochs: tf.Tensor) -> tuple[dict[str, tf.Tensor]]:
        rows = fetch(reader, numbers)
        if masker is not None:
            rows = masker(rows, epochs)
        return (examples.model_inputs(rows),)

    steps = tf.data.Dataset.range(first_step, training.train_steps).map(positions_of)
    return _distribute(steps, training.global_batch_size, read, strategy)


def evaluation_dataset(
    reader: RecordReader,
    rows: npt.NDArray[np.int64],
    config: PipelineConfig,
    strategy: tf.distribute.Strategy,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Return the given records once, in order, in batches of evaluation.global_batch_size.

    Each element is a replica's share of (:func:`training.examples.model_inputs`, row weights [R]).
    The last batch is filled up with its first record at weight 0, so that all shapes are the same.
    """
    batch_size = config.evaluation.global_batch_size
    missing = -len(rows) % batch_size
    first_of_last = rows[len(rows) - (len(rows) - 1) % batch_size - 1]
    numbers = np.concatenate([rows, np.repeat(first_of_last, missing)])
    weights = np.pad(np.ones(len(rows), np.float32), (0, missing))
    batches = tf.data.Dataset.from_tensor_slices((numbers, weights)).batch(
        batch_size, drop_remainder=True
    )

    def read(share: tf.Tensor, row_weights: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        return examples.model_inputs(fetch(reader, share)), row_weights

    return _distribute(batches, batch_size, read, strategy)


def _distribute(
    batches: tf.data.Dataset,
    batch_size: int,
    read: Callable[..., tuple[Any, ...]],
    strategy: tf.distribute.Strategy,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Split global batches over the replicas, in order, and read the records of each share.

    :param batches: tuples of tensors [batch_size].
    :param read: makes the element of a replica from its share of those tensors.
    """

    def for_input_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local_replicas = context.num_replicas_in_sync // context.num_input_pipelines
        per_replica = context.get_per_replica_batch_size(batch_size)

        def shares(*batch: tf.Tensor) -> tf.data.Dataset:
            shape = [context.num_input_pipelines, local_replicas, per_replica]
            mine = [tf.reshape(part, shape)[context.input_pipeline_id] for part in batch]
            return tf.data.Dataset.from_tensor_slices(tuple(mine))

        dataset = batches.flat_map(shares).map(read).prefetch(PREFETCHED_BATCHES)
        return dataset.with_options(_options())

    if strategy.num_replicas_in_sync == 1:
        # Plain, as distribution adds a thread per device that slows down the end of a process.
        return for_input_pipeline(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(for_input_pipeline)


def _options() -> tf.data.Options:
    options = tf.data.Options()
    # Nothing here is to be tuned, and deleting an iterator would wait for the tuning thread, which
    # sleeps for up to a minute.
    options.autotune.enabled = False
    return options


def fetch(reader: RecordReader, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the features of the records with these numbers; see :func:`training.examples.parse`.

    :param numbers: int64 [R], R known when this is traced.
    """

    def read(wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        return np.array(reader.read(wanted), dtype=object)

    # Not stateful: the bytes depend on the numbers alone, so tf.data may run ahead.
    serialized = tf.numpy_function(read, [numbers], tf.string, stateful=False)
    return examples.parse(tf.ensure_shape(serialized, numbers.shape), reader.row_format)
