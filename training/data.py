"""Batches as a pure function of (seed, step): the input position is the step number, nothing else.

A resumed training therefore sees exactly the records that an uninterrupted one would have seen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from mlm_records import FEATURES
from pipeline_config import PipelineConfig
from training.errors import BadDataError
from training.records import RecordReader

# What tf-models calls the features that google-research/bert named.
MODEL_INPUTS = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
PREFETCHED_BATCHES = 4


def feature_sizes(config: PipelineConfig) -> dict[str, int]:
    """Return the number of values that each feature of a record must have."""
    masking = config.masking
    return {
        feature.name: feature.size(
            max_seq_length=masking.max_seq_length,
            max_predictions_per_seq=masking.max_predictions_per_seq,
        )
        for feature in FEATURES
    }


def check_records(reader: RecordReader, config: PipelineConfig) -> None:
    """Compare the first record of every file with the configuration.

    :raises BadDataError: it is no ``tf.train.Example``, or a feature has another length.
    """
    for path, serialized in reader.first_records():
        try:
            found = tf.train.Example.FromString(serialized).features.feature
        except Exception as error:
            raise BadDataError(f"{path}: its first record is not a tf.train.Example.") from error
        for feature in FEATURES:
            kind = "int64_list" if feature.dtype == "int64" else "float_list"
            length = len(getattr(found[feature.name], kind).value)
            wanted = feature_sizes(config)[feature.name]
            if length != wanted:
                raise BadDataError(
                    f"{path}: feature {feature.name!r} has {length} {feature.dtype} values; the "
                    f"configuration says {wanted} (masking.max_seq_length="
                    f"{config.masking.max_seq_length}, masking.max_predictions_per_seq="
                    f"{config.masking.max_predictions_per_seq}). Prepare the partition again."
                )


def record_numbers(
    step: tf.Tensor, *, seed: int, global_batch_size: int, num_records: int
) -> tf.Tensor:
    """Return the records of one step: every epoch is a permutation of its own.

    :param step: int64 scalar, counted from 0.
    :returns: record numbers, int64 [global_batch_size]; a batch may span epochs.
    """
    position = step * global_batch_size + tf.range(global_batch_size, dtype=tf.int64)
    epoch, within = position // num_records, position % num_records
    last = tf.constant(num_records - 1, tf.int64)

    numbers = within
    for offset in range((global_batch_size - 1) // num_records + 2):
        seeds = tf.stack([tf.constant(seed, tf.int64), epoch[0] + offset])
        shuffled = tf.random.experimental.index_shuffle(within, seed=seeds, max_index=last)
        numbers = tf.where(epoch == epoch[0] + offset, shuffled, numbers)
    return numbers


def training_dataset(
    reader: RecordReader, config: PipelineConfig, first_step: int, strategy: tf.distribute.Strategy
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Return the batches from one step to the end of training.

    Each element is a tuple of one: a replica's share of the batch, as :func:`model_inputs` returns
    it. The order of records does not depend on the number of replicas.
    """
    training = config.training

    def numbers_of(step: tf.Tensor) -> tuple[tf.Tensor]:
        numbers = record_numbers(
            step,
            seed=training.random_seed,
            global_batch_size=training.global_batch_size,
            num_records=len(reader),
        )
        return (numbers,)

    steps = tf.data.Dataset.range(first_step, training.train_steps).map(numbers_of)
    return _distribute(steps, training.global_batch_size, reader, config, strategy)


def evaluation_dataset(
    reader: RecordReader,
    rows: npt.NDArray[np.int64],
    config: PipelineConfig,
    strategy: tf.distribute.Strategy,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Return the given records once, in order, in batches of evaluation.global_batch_size.

    Each element is a replica's share of (:func:`model_inputs`, row weights [R]). The last batch is
    filled up with its first record at weight 0, so that all shapes are the same.
    """
    batch_size = config.evaluation.global_batch_size
    missing = -len(rows) % batch_size
    first_of_last = rows[len(rows) - (len(rows) - 1) % batch_size - 1]
    numbers = np.concatenate([rows, np.repeat(first_of_last, missing)])
    weights = np.pad(np.ones(len(rows), np.float32), (0, missing))
    batches = tf.data.Dataset.from_tensor_slices((numbers, weights)).batch(
        batch_size, drop_remainder=True
    )
    return _distribute(batches, batch_size, reader, config, strategy)


def _distribute(
    batches: tf.data.Dataset,
    batch_size: int,
    reader: RecordReader,
    config: PipelineConfig,
    strategy: tf.distribute.Strategy,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Split global batches over the replicas, in order, and read the records of each share.

    :param batches: tuples that begin with record numbers [batch_size]; what follows them, also
        [batch_size], is passed on.
    """

    def for_input_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local_replicas = context.num_replicas_in_sync // context.num_input_pipelines
        per_replica = context.get_per_replica_batch_size(batch_size)

        def shares(*batch: tf.Tensor) -> tf.data.Dataset:
            shape = [context.num_input_pipelines, local_replicas, per_replica]
            mine = [tf.reshape(part, shape)[context.input_pipeline_id] for part in batch]
            return tf.data.Dataset.from_tensor_slices(tuple(mine))

        def read(numbers: tf.Tensor, *rest: tf.Tensor) -> tuple[object, ...]:
            return (model_inputs(fetch(reader, numbers, per_replica, config)), *rest)

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


def fetch(
    reader: RecordReader, numbers: tf.Tensor, rows: int, config: PipelineConfig
) -> dict[str, tf.Tensor]:
    """Return the features of the records with these numbers; see :func:`parse`."""

    def read(wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        return np.array(reader.read(wanted), dtype=object)

    # Not stateful: the bytes depend on the numbers alone, so tf.data may run ahead.
    serialized = tf.numpy_function(read, [numbers], tf.string, stateful=False)
    return parse(tf.ensure_shape(serialized, [rows]), config)


def parse(serialized: tf.Tensor, config: PipelineConfig) -> dict[str, tf.Tensor]:
    """Parse a batch of serialized records.

    :param serialized: string [R].
    :returns: by feature name, R rows of S, P or 1 values (``mlm_records.FEATURES``), as int32 or
        float32, which TPUs take; ``document_id`` stays int64.
    """
    sizes = feature_sizes(config)
    spec = {f.name: tf.io.FixedLenFeature([sizes[f.name]], f.dtype) for f in FEATURES}
    parsed = tf.io.parse_example(serialized, spec)
    return {
        name: tf.cast(value, tf.int32)
        if value.dtype == tf.int64 and name != "document_id"
        else value
        for name, value in parsed.items()
    }


def parse_document_ids(serialized: list[bytes]) -> npt.NDArray[np.int64]:
    """Return the document id of each serialized record, int64 [R]."""
    spec = {"document_id": tf.io.FixedLenFeature([1], tf.int64)}
    return tf.io.parse_example(serialized, spec)["document_id"].numpy()[:, 0]


def parse_labels(
    serialized: list[bytes], config: PipelineConfig
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the masked tokens of serialized records and their weights, both [R, P]."""
    size = config.masking.max_predictions_per_seq
    spec = {
        "masked_lm_ids": tf.io.FixedLenFeature([size], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([size], tf.float32),
    }
    parsed = tf.io.parse_example(serialized, spec)
    return parsed["masked_lm_ids"].numpy(), parsed["masked_lm_weights"].numpy()


def model_inputs(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return what the model takes, under tf-models' names."""
    return {
        MODEL_INPUTS.get(name, name): value
        for name, value in features.items()
        if name != "document_id"
    }
