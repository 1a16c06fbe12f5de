"""Batches of arrays that are in memory, once and in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from training.input.data import distribute

Arrays = Mapping[str, npt.NDArray[Any]]


def as_tensors(arrays: Arrays) -> dict[str, tf.Tensor]:
    """Return arrays as tensors of this host, for an input pipeline to gather from."""
    with tf.device("/cpu:0"):
        return {name: tf.constant(values) for name, values in arrays.items()}


def in_order(arrays: Arrays, batch_size: int, strategy: tf.distribute.Strategy) -> Iterator[Any]:
    """Yield all rows once, in order, in batches of one size.

    Each element is a tuple of one, a replica's share. The last batch is filled up with the first
    row, so that all shapes are the same; whoever reads cuts that off.

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
