"""Batches as a pure function of (seed, step): the input position is the step number, nothing else.

A resumed training therefore sees exactly the records that an uninterrupted one would have seen,
and, where masks are drawn on the fly, under exactly the same masks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from trained_models.phases import Phase
from trained_models.record_sources import PhaseSources
from training.input import examples
from training.input.masks import Masker, load_masker
from training.input.order import Order
from training.input.records import RecordReader
from training.runtime.strategies import drives_other_hosts

PREFETCHED_BATCHES = 4
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class PhaseData:
    """The input of one phase.

    ``reader`` lists the new records and after them those to replay, as ``order`` numbers them.
    ``masker`` masks the rows anew in each epoch; None: the records are already masked.
    """

    order: Order
    reader: RecordReader
    masker: Masker | None


@dataclass(frozen=True)
class TrainingData:
    """The input of a training: one part for each of its phases, in order."""

    parts: tuple[PhaseData, ...]

    def of(self, phase: Phase) -> PhaseData:
        """Return the input of a phase."""
        return next(part for part in self.parts if part.order.phase == phase)


def load_training_data(
    sources: Sequence[PhaseSources],
    store: StoreLayout,
    config: PipelineConfig,
    first_epoch: int = 0,
) -> TrainingData:
    """Open the records of a training, verify them, and load their masker.

    :param sources: as :func:`trained_models.record_sources.phase_sources` returns them.
    :param first_epoch: as :func:`trained_models.updates.first_epoch` returns it.
    :raises FormatError: a file does not verify.
    :raises BadDataError: records are not what their manifest says.
    """
    parts = (_phase_data(part, store, config, first_epoch) for part in sources)
    return TrainingData(tuple(parts))


def _phase_data(
    sources: PhaseSources, store: StoreLayout, config: PipelineConfig, first_epoch: int
) -> PhaseData:
    reader = RecordReader([*sources.new, *sources.replay])
    examples.check_records(reader)
    new_records = sum(source.file.records for source in sources.new)
    order = Order(
        phase=sources.phase,
        seed=config.training.random_seed,
        new_records=new_records,
        replay_records=len(reader) - new_records,
        replay_fraction=config.training.replay_fraction,
        first_epoch=first_epoch,
    )
    predictions = sources.phase.max_predictions_per_seq
    masker = load_masker(store, config, predictions) if config.masking.dynamic else None
    return PhaseData(order, reader, masker)


def training_dataset(
    data: TrainingData,
    phase: Phase,
    first_step: int,
    skipped: int,
    strategy: tf.distribute.Strategy,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Return the batches from one step to the end of its phase.

    Each element is a tuple of one: a replica's share of the batch, as
    :func:`training.input.examples.model_inputs` returns it. Neither the order of records nor their
    masks depend on the number of replicas.

    :param first_step: a step of the phase, counted from the beginning of training.
    :param skipped: steps whose records are skipped: step ``s`` reads the records that step
        ``s + skipped`` would read otherwise.
    """
    part = data.of(phase)
    order, reader, masker = part.order, part.reader, part.masker

    def rows_of(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        numbers, epochs = order.rows(step + skipped)
        return numbers, epochs

    def read(numbers: tf.Tensor, epochs: tf.Tensor) -> tuple[dict[str, tf.Tensor]]:
        rows = fetch(reader, numbers)
        if masker is not None:
            rows = masker(rows, epochs)
        return (examples.model_inputs(rows),)

    steps = tf.data.Dataset.range(first_step, phase.end_step).map(rows_of)
    return distribute(steps, phase.global_batch_size, read, strategy, is_read_to_the_end=False)


class TrainingBatches:
    """The batches of a training, which a loop of steps takes one after the other."""

    def __init__(self, data: TrainingData, strategy: tf.distribute.Strategy) -> None:
        self._data = data
        self._strategy = strategy
        self._next: tuple[int, int] | None = None
        self._iterator: Iterator[Any] = iter(())

    def take(self, step: int, steps: int, skipped: int = 0) -> Iterator[Any]:
        """Return an iterator whose next batches are those of the given steps.

        The caller takes all of them. The iterator is a new one at the start of a phase and after a
        jump, and otherwise continues.

        :param step: the first step.
        :param steps: number of steps; all belong to one phase.
        :param skipped: as for :func:`training_dataset`.
        """
        phase = next(p.order.phase for p in self._data.parts if step < p.order.phase.end_step)
        if self._next != (step, skipped) or step == phase.first_step:
            dataset = training_dataset(self._data, phase, step, skipped, self._strategy)
            self._iterator = iter(dataset)
        self._next = (step + steps, skipped)
        return self._iterator


def evaluation_dataset(
    reader: RecordReader,
    rows: npt.NDArray[np.int64],
    batch_size: int,
    strategy: tf.distribute.Strategy,
) -> Iterator[Any]:
    """Yield the given records once, in order, in batches of ``batch_size`` rows.

    Each element is a replica's share of (:func:`training.input.examples.model_inputs`, row weights
    [R]). The last batch is filled up with its first record at weight 0, so that all shapes are the
    same.
    """
    missing = -len(rows) % batch_size
    first_of_last = rows[len(rows) - (len(rows) - 1) % batch_size - 1]
    numbers = np.concatenate([rows, np.repeat(first_of_last, missing)])
    weights = np.pad(np.ones(len(rows), np.float32), (0, missing))
    batches = tf.data.Dataset.from_tensor_slices((numbers, weights)).batch(
        batch_size, drop_remainder=True
    )

    def read(share: tf.Tensor, row_weights: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        return examples.model_inputs(fetch(reader, share)), row_weights

    shares = distribute(batches, batch_size, read, strategy, is_read_to_the_end=True)
    return itertools.islice(shares, len(numbers) // batch_size)


def distribute(
    batches: tf.data.Dataset,
    batch_size: int,
    read: Callable[..., tuple[Any, ...]],
    strategy: tf.distribute.Strategy,
    *,
    is_read_to_the_end: bool,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Split global batches over the replicas, in order, and read the records of each share.

    Where replicas are on hosts that run no program of ours, and so cannot read, elements are whole
    global batches, for :func:`training.runtime.strategies.on_replicas` to split.
    """

    def for_input_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        shares = shares_of(batches, batch_size, read, context)
        joined = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if is_read_to_the_end or not joined:
            return shares
        # Otherwise the machines would ask each other in every step whether one has reached its end,
        # and would treat the number of rows as unknown.
        return shares.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))

    if strategy.num_replicas_in_sync == 1 or drives_other_hosts(strategy):
        # Not distributed: for one replica, distribution would add a thread per device that slows
        # down the end of a process.
        return for_input_pipeline(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(for_input_pipeline)


def shares_of(
    batches: tf.data.Dataset,
    batch_size: int,
    read: Callable[..., tuple[Any, ...]],
    context: tf.distribute.InputContext,
) -> tf.data.Dataset:
    """Return the elements of one input pipeline (one per host): its replicas' shares, in turn.

    Only their shares are read.

    :param batches: tuples of tensors [batch_size].
    :param read: makes the element of a replica from its share of those tensors.
    """
    local_replicas = context.num_replicas_in_sync // context.num_input_pipelines
    per_replica = context.get_per_replica_batch_size(batch_size)

    def shares(*batch: tf.Tensor) -> tf.data.Dataset:
        shape = [context.num_input_pipelines, local_replicas, per_replica]
        mine = [tf.reshape(part, shape)[context.input_pipeline_id] for part in batch]
        return tf.data.Dataset.from_tensor_slices(tuple(mine))

    dataset = batches.flat_map(shares).map(read).prefetch(PREFETCHED_BATCHES)
    return dataset.with_options(_options())


def _options() -> tf.data.Options:
    options = tf.data.Options()
    # There is nothing to tune here, and deleting an iterator would wait for the tuning thread,
    # which sleeps for up to a minute.
    options.autotune.enabled = False
    return options


def fetch(reader: RecordReader, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the features of these records, as :func:`training.input.examples.parse` does.

    :param numbers: record numbers, int64 [R]; R must be known when this is traced.
    """

    def read(wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        return np.array(reader.read(wanted), dtype=object)

    # Not stateful: the bytes depend on the numbers alone, so tf.data may run ahead.
    serialized = tf.numpy_function(read, [numbers], tf.string, stateful=False)
    return examples.parse(tf.ensure_shape(serialized, numbers.shape), reader.row_format)


def as_tensors(arrays: Arrays) -> dict[str, tf.Tensor]:
    """Return arrays as tensors of this host, for an input pipeline to gather from."""
    with tf.device("/cpu:0"):
        return {name: tf.constant(values) for name, values in arrays.items()}


def in_order(arrays: Arrays, batch_size: int, strategy: tf.distribute.Strategy) -> Iterator[Any]:
    """Yield all rows once, in order, in batches of one size.

    Each element is a tuple of one, a replica's share. The last batch is filled up with the first
    row, so that all shapes are the same; the caller cuts the padding off.

    :param arrays: [N, ...] each, N at least 1.
    """
    tensors = as_tensors(arrays)
    numbers = np.arange(rows_of(arrays))
    numbers = np.pad(numbers, (0, -len(numbers) % batch_size))
    batches = tf.data.Dataset.from_tensor_slices((numbers,)).batch(batch_size, drop_remainder=True)

    def read(share: tf.Tensor) -> tuple[dict[str, tf.Tensor]]:
        return ({name: tf.gather(values, share) for name, values in tensors.items()},)

    shares = distribute(batches, batch_size, read, strategy, is_read_to_the_end=True)
    return itertools.islice(shares, len(numbers) // batch_size)


def rows_of(arrays: Arrays) -> int:
    """Return the number of rows, which all arrays have."""
    return len(next(iter(arrays.values())))
